"""Binary search in sorted sequences: searchsorted and bucketize, and `isin`, which searches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import equal, less, less_equal, logical_and, logical_not, logical_or, not_equal
from polyhal.hal.ops.pointwise.selection import minimum, where
from polyhal.hal.ops.reductions.sort import sort
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _search(sequence: Array, values: Array, *, right: bool = False) -> Any:
    """For each row of `sequence` (rows, n), sorted, and of `values` (rows, m): the number of elements before each value.

    Those below it or, with `right`, also equal ones. A NaN among the values is after everything, and one in the sequence
    after all numbers. Returns int64 (rows, m).
    """
    sequence, values = np.asarray(sequence), np.asarray(values)
    start = np.zeros(values.shape, np.int64)
    for step in _steps(sequence.shape[1]):
        end = start + step
        element = np.take_along_axis(sequence, np.minimum(end, sequence.shape[1]) - 1, 1)
        before = ((element <= values) if right else (element < values)) | (values != values)
        start = np.where(before & (end <= sequence.shape[1]), end, start)
    return start


def _steps(length: int) -> list[int]:
    """Powers of two, the largest first, that sum to at least `length`."""
    return [1 << bit for bit in reversed(range(length.bit_length()))]


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    sequence, values = tensor_at(specs, 0), tensor_at(specs, 1)
    if sequence.ndim != 2 or values.ndim != 2 or sequence.shape[0] != values.shape[0]:
        raise ValueError(f"sequence {sequence.shape} and values {values.shape}; expected (rows, n) and (rows, m)")
    params["right"] = bool(params["right"])
    return [(dtypes.int64, values.shape)]


def _decomposed(sequence: TensorLike, values: TensorLike, *, right: bool) -> Any:
    length = sequence.shape[1]
    start = full(values.shape, 0, dtypes.int32)
    for step in _steps(length):
        end = start + step
        element = take_along_axis(sequence, minimum(end, length) - 1, 1)
        before = (less_equal if right else less)(element, values)
        if values.dtype.kind == "float":
            before = logical_or(before, not_equal(values, values))
        start = where(logical_and(before, less_equal(end, length)), end, start)
    return start.cast(dtype=dtypes.int64)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(rows: int, n: int, m: int) -> tuple[Any, Any]:
        sequence = np.sort(rng.integers(-9, 9, (rows, n)).astype(np.float64), 1)
        return sequence, rng.integers(-10, 10, (rows, m)).astype(np.float64)

    special = np.array([[-np.inf, 0.0, 1.0, np.nan]]), np.array([[np.nan, -np.inf, np.inf, 0.0]])
    return [
        Sample((x, y), {"right": right}, differentiable=False)
        for right in (False, True)
        for x, y in [case(2, 7, 5), case(1, 64, 3), case(3, 0, 2)]
    ] + [Sample(special, {"right": right}, special=True) for right in (False, True)]


search_rows: OpFunction = declare(
    _search,
    name="search_rows",
    family="sorting",
    infer=_infer,
    lowering=Decompose(_decomposed, widen=False),
    samples=_samples,
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((3, 3))), {}, ValueError, r"expected \(rows, n\)")],
    dtypes=(dtypes.float32, dtypes.float16, dtypes.float64, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(0.0),
    public=False,
)


@composite(method=False, aten=".Tensor .Scalar")
def searchsorted(
    sorted_sequence: TensorLike,
    x: TensorLike,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Where to insert `x` into `sorted_sequence` (..., n) so that it stays sorted along its last axis (int64).

    A vector serves `x` of any shape; otherwise the leading axes of both agree. Equal elements stay behind, or with `right`
    (`side="right"`) before. `sorter` holds positions that sort the sequence. Raises ValueError for shapes that differ.

    >>> polyhal.searchsorted(polyhal.tensor([1, 3, 5]), polyhal.tensor([4])).tolist()
    [2]
    """
    if side not in (None, "left", "right"):
        raise ValueError(f"[searchsorted] side is {side!r}; expected 'left' or 'right'")
    right = right or side == "right"
    if sorter is not None:
        sorted_sequence = take_along_axis(sorted_sequence, sorter, -1)
    if not hasattr(x, "spec"):
        x = full((), x, device=sorted_sequence.device)
    length = sorted_sequence.shape[-1]
    if sorted_sequence.ndim == 1:
        rows = 1
    elif sorted_sequence.shape[:-1] == x.shape[:-1]:
        rows = math.prod(x.shape[:-1])
    else:
        raise ValueError(
            f"[searchsorted] a sequence {sorted_sequence.shape} and values {x.shape}; expected equal leading axes"
        )
    if math.prod(x.shape):
        places = search_rows(
            reshape(sorted_sequence, (rows, length)), reshape(x, (rows, math.prod(x.shape) // max(rows, 1))), right
        )
    else:
        places = full((0,), 0, dtypes.int64, device=x.device)
    places = reshape(places, x.shape)
    return places.cast(dtype=dtypes.int32) if out_int32 else places


@composite(method=False, aten=".Tensor .Scalar")
def bucketize(x: TensorLike, boundaries: TensorLike, *, out_int32: bool = False, right: bool = False) -> Any:
    """The number (int64) of the bucket of each element: how many of the sorted `boundaries` are below it.

    With `right`, those equal to it count too.
    """
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@composite(method=False, aten=".Tensor_Tensor .Tensor_Scalar .Scalar_Tensor")
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return whether each element occurs among `test_elements`; with `invert`, whether it does not. Either may be a number.

    >>> polyhal.isin(polyhal.tensor([1, 2]), polyhal.tensor([2, 3])).tolist()
    [False, True]
    """
    if not hasattr(elements, "spec"):
        elements = full((), elements, device=test_elements.device)
    if not hasattr(test_elements, "spec"):
        return (not_equal if invert else equal)(elements, test_elements)
    if not test_elements.size:
        return full(elements.shape, invert, dtypes.bool_, device=elements.device)
    dtype = dtypes.promote(elements.dtype, test_elements.dtype)
    elements, ordered = elements.cast(dtype=dtype), sort(reshape(test_elements, (-1,)).cast(dtype=dtype))
    places = reshape(minimum(searchsorted(ordered, elements), ordered.shape[0] - 1), (-1,))
    found = equal(reshape(take_along_axis(ordered, places, 0), elements.shape), elements)
    return logical_not(found) if invert else found
