"""`store_rows`: rows of a tensor replaced in place, from a position that varies between calls, as in a KV cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.views import broadcast_to, contiguous, reshape
from polyhal.hal.ops.pointwise.logic import greater_equal, less, logical_and
from polyhal.hal.ops.pointwise.selection import clip, where
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _store_rows(x: Array, value: Array, position: Array) -> tuple[np.ndarray]:
    """`x` (..., C, D) with rows from `position` replaced by `value` (..., T, D); rows outside are skipped."""
    out = np.array(x, order="C")
    value, first = np.asarray(value), int(position)
    low, high = max(first, 0), min(first + value.shape[-2], out.shape[-2])
    if low < high:
        out[..., low:high, :] = value[..., low - first : high - first, :].astype(out.dtype)
    return (out,)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, value, position = first_tensor(specs), specs[1], specs[2]
    if isinstance(position, Spec) or position is None or not position.dtype.is_integral:
        raise ValueError(f"the position is {position}; expected a whole number")
    if not isinstance(value, Spec) or x.ndim < 2 or value.shape != (*x.shape[:-2], *value.shape[-2:-1], x.shape[-1]):
        raise ValueError(f"rows {value}; expected (*{x.shape[:-2]}, rows, {x.shape[-1]})")
    return [(x.dtype, x.shape)]


def _decomposed(x: Any, value: Any, position: TensorLike) -> Any:
    capacity, count = x.shape[-2], value.shape[-2]
    if not count:
        return contiguous(x)
    row = arange(0, capacity, 1, dtypes.int32) - position
    inside = reshape(logical_and(greater_equal(row, 0), less(row, count)), (capacity, 1))
    if count > 1:
        # For each row of x the row of value that may replace it.
        index = broadcast_to(reshape(clip(row, 0, count - 1), (capacity, 1)), x.shape)
        value = take_along_axis(value, index, x.ndim - 2)
    return where(inside, value if value.dtype is x.dtype else value.cast(dtype=x.dtype), x)


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((2, 3, 7, 5), (2, 3, 1, 5), 0),
        ((2, 3, 7, 5), (2, 3, 1, 5), 6),
        ((4, 6), (3, 6), 1),
        ((9, 33), (4, 33), 7),
        ((1, 2, 5, 4), (1, 2, 1, 4), 5),
        ((3, 4), (2, 4), -1),
    ]
    return [
        Sample((rng.uniform(-1, 1, x), rng.uniform(-1, 1, rows), position), differentiable=False)
        for x, rows, position in cases
    ]


store_rows = declare(
    _store_rows,
    name="store_rows",
    family="movement",
    mutates=(0,),
    infer=_infer,
    lowering=Decompose(_decomposed),
    public=False,
    samples=_samples,
    errors=[
        ErrorSample((np.zeros((4, 3)), np.zeros((1, 2)), 0), {}, ValueError, "rows, 3"),
        ErrorSample((np.zeros((4, 3)), np.zeros((1, 3)), 0.5), {}, ValueError, "whole number"),
    ],
    dtypes=(dtypes.float32, dtypes.float16, dtypes.bfloat16),
    tolerance=Tolerance(0.0),
)
