"""Quotients by counts of elements, which the dtype of the elements may not hold: float16 ends at 65,504."""

from __future__ import annotations

from typing import Any

from polyhal.hal.dtypes import accumulator
from polyhal.hal.ops.pointwise.cast import in_dtype
from polyhal.hal.ops.tensor_like import TensorLike


def shared(g: Any, chosen: Any, axis: Any) -> Any:
    """Divide `g`, of length 1 along `axis`, equally among the elements along it that the bool `chosen` marks."""
    wide = accumulator(g.dtype)
    count = chosen.cast(dtype=wide).sum(axis=axis, keepdims=True)
    return chosen.cast(dtype=g.dtype) * divided_by_count(g, count)


def divided_by_count(total: TensorLike, count: TensorLike) -> Any:
    """Divide `total` by a tensor of counts in the dtype of its accumulator."""
    wide = accumulator(total.dtype)
    return in_dtype(in_dtype(total, wide) / in_dtype(count, wide), total.dtype)
