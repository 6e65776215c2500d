"""Writes by one mask, of values that do not depend on its number of True elements: computed by `where`.

They need no synchronization with the device, so that captured steps can record them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.tensor_like import TensorLike


def mask_of_rows(x: TensorLike, items: Sequence[Any], value: TensorLike | float) -> Any:
    """Return the mask among `items`, with axes of length 1 for the rest of `x`; None for other items and other values.

    `value` is a number, one row, or a tensor that broadcasts to one. Returns None for a mask of a shape that does not fit.
    """
    mask: Any = items[0] if items else None
    if not hasattr(mask, "ref") or mask.dtype is not dtypes.bool_ or not all(map(_is_whole, items[1:])):
        return None
    rest = x.ndim - mask.ndim
    if rest < 0 or mask.shape != x.shape[: mask.ndim] or not _is_one_row(value, rest, mask.ndim > 0):
        return None
    return reshape(mask, (*mask.shape, *(1,) * rest))


def _is_whole(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _is_one_row(value: Any, ndim: int, may_have_hits: bool) -> bool:
    """Return whether a value is one row for all hits. `may_have_hits` allows an axis of length 1 for the hits."""
    if not hasattr(value, "ref") or value.ndim <= ndim:
        return True
    return may_have_hits and value.ndim == ndim + 1 and value.shape[0] == 1
