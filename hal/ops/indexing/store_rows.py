"""`store_rows`: rows of tensors replaced in place, at positions in device memory, as in a key-value cache."""

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


def _store_rows(x: Array, value: Array, positions: Array) -> tuple[np.ndarray]:
    """`x` (B, ..., C, D) with rows from `positions[b]` (B,) on replaced by `value` (B, ..., T, D); rows outside are skipped."""
    out = np.array(x, order="C")
    value = np.asarray(value)
    for b, first in enumerate(np.asarray(positions, np.int64).tolist()):
        low, high = max(first, 0), min(first + value.shape[-2], out.shape[-2])
        if low < high:
            out[b, ..., low:high, :] = value[b, ..., low - first : high - first, :].astype(out.dtype)
    return (out,)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, value, positions = first_tensor(specs), specs[1], specs[2]
    if (
        x.ndim < 3
        or not isinstance(positions, Spec)
        or (positions.shape, positions.dtype) != (x.shape[:1], dtypes.int32)
    ):
        raise ValueError(
            f"positions {positions} for {x}; expected int32[{x.shape[0] if x.ndim else 0}], and 3 axes or more"
        )
    if not isinstance(value, Spec) or value.shape != (*x.shape[:-2], *value.shape[-2:-1], x.shape[-1]):
        raise ValueError(f"rows {value}; expected (*{x.shape[:-2]}, rows, {x.shape[-1]})")
    return [(x.dtype, x.shape)]


def _decomposed(x: Any, value: Any, positions: TensorLike) -> Any:
    capacity, count = x.shape[-2], value.shape[-2]
    if not count:
        return contiguous(x)
    row = arange(0, capacity, 1, dtypes.int32) - reshape(positions, (x.shape[0], 1))
    lead = (x.shape[0], *(1,) * (x.ndim - 3), capacity, 1)
    inside = reshape(logical_and(greater_equal(row, 0), less(row, count)), lead)
    if count > 1:
        # For each row of x the row of value that may replace it.
        index = broadcast_to(reshape(clip(row, 0, count - 1), lead), x.shape)
        value = take_along_axis(value, index, x.ndim - 2)
    return where(inside, value if value.dtype is x.dtype else value.cast(dtype=x.dtype), x)


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], int, list[int]]] = [
        ((2, 3, 7, 5), 1, [0, 6]),
        ((2, 4, 6), 3, [1, -1]),
        ((1, 9, 33), 4, [7]),
        ((3, 2, 5, 4), 2, [5, 4, -2]),
    ]
    return [
        Sample(
            (rng.uniform(-1, 1, x), rng.uniform(-1, 1, (*x[:-2], rows, x[-1])), np.array(positions, np.int32)),
            differentiable=False,
        )
        for x, rows, positions in cases
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
        ErrorSample((np.zeros((1, 4, 3)), np.zeros((1, 1, 2)), np.zeros(1, np.int32)), {}, ValueError, "rows, 3"),
        ErrorSample((np.zeros((1, 4, 3)), np.zeros((1, 1, 3)), np.zeros(2, np.int32)), {}, ValueError, "int32"),
    ],
    dtypes=(dtypes.float32, dtypes.float16, dtypes.bfloat16),
    tolerance=Tolerance(0.0),
)
