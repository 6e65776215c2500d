"""sort, argsort and topk along one axis. Sorting is stable, and NaN counts as the largest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.along_axis import declare_along_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import (
    ErrorSample,
    OpFunction,
    Output,
    Sample,
    Specs,
    Tolerance,
    first_tensor,
)
from polyhal.hal.ops.indexing.along_axis import scatter_along_axis
from polyhal.hal.ops.layout.axes import flip, moveaxis
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.logic import equal, greater, less, logical_and, logical_or, not_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike

_OUTPUTS = ("values", "indices")


def _sorted_positions(x: Array, axis: int, descending: bool) -> Any:
    """Positions in sorted order, as int64. Sorting the reversed axis makes the reversed order stable too."""
    x = np.asarray(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - backwards


def _axis(specs: Specs, params: dict[str, Any]) -> Spec:
    """The input. Normalizes `axis`; raises ValueError if it is too long for int32 positions."""
    spec = first_tensor(specs)
    params["axis"] = normalize_axis(params["axis"], spec.ndim)
    if spec.shape[params["axis"]] >= 1 << 31:
        raise ValueError(f"axis of length {spec.shape[params['axis']]}; expected less than 2^31")
    return spec


# --- decomposition --------------------------------------------------------------------------------------------------


def _extreme(dtype: DType, largest: bool) -> float | int:
    """The last (or first) element of `dtype` in sorted order: NaN is the largest float."""
    if dtype.kind == "float":
        return float("nan") if largest else float("-inf")
    if dtype.kind == "bool":
        return int(largest)
    bits = 8 * dtype.itemsize
    if dtype.kind == "uint":
        return (1 << bits) - 1 if largest else 0
    return (1 << bits - 1) - 1 if largest else -(1 << bits - 1)


def _swapped(a: TensorLike, b: TensorLike, i: TensorLike, j: TensorLike, descending: bool) -> Any:
    """Return whether element (b, j) comes before (a, i): positions decide between equal elements."""
    before = greater(b, a) if descending else less(b, a)
    same = equal(a, b)
    if a.dtype.kind == "float":
        a_nan, b_nan = not_equal(a, a), not_equal(b, b)
        first, second = (b_nan, a_nan) if descending else (a_nan, b_nan)
        before = logical_or(before, logical_and(first, second.logical_not()))
        same = logical_or(same, logical_and(a_nan, b_nan))
    return logical_or(before, logical_and(same, less(j, i)))


def _halves(x: TensorLike, size: int) -> tuple[Any, Any]:
    """The first and the second halves of runs of `size` elements of (rows, length): (rows, runs, size / 2) each."""
    rows, length = x.shape
    runs, half = reshape(x, (rows, length // size, size)), size // 2
    shape, steps = (rows, length // size, half), (1, 1, 1)
    return slice_(runs, (0, 0, 0), shape, steps), slice_(runs, (0, 0, half), shape, steps)


def _round(x: TensorLike, index: TensorLike, size: int, mirrored: bool, descending: bool) -> tuple[Any, Any]:
    """Compare and exchange each element of the first half of every run with its partner in the second half.

    The partner is `size / 2` away or, if `mirrored`, as far from the end as the element is from the start.
    """
    a, b = _halves(x, size)
    i, j = _halves(index, size)
    if mirrored:
        b, j = flip(b, 2), flip(j, 2)
    swap = _swapped(a, b, i, j, descending)
    pairs = []
    for first, second in ((a, b), (i, j)):
        low, high = where(swap, second, first), where(swap, first, second)
        pairs.append(reshape(concat((low, flip(high, 2) if mirrored else high), 2), x.shape))
    return pairs[0], pairs[1]


def _decomposed_sort(x: TensorLike, *, axis: int, descending: bool) -> Any:
    """A bitonic network (Batcher, 1968) over the next power of two: about log2(n)^2 / 2 rounds."""
    front = moveaxis(x, axis, -1)
    dtype, length = x.dtype, x.shape[axis]
    rows = math.prod(front.shape[:-1])
    flat = reshape(front, (rows, length))
    if dtype.kind == "bool":
        flat = flat.cast(dtype=dtypes.int32)
    padded = 1 << max(length - 1, 0).bit_length()
    if padded > length:
        filler = full((rows, padded - length), _extreme(flat.dtype, not descending), flat.dtype)
        flat = concat((flat, filler), 1)
    index = broadcast_to(arange(0, padded, 1, dtypes.int32), (rows, padded))
    size = 2
    while size <= padded:
        flat, index = _round(flat, index, size, True, descending)
        part = size // 2
        while part > 1:
            flat, index = _round(flat, index, part, False, descending)
            part //= 2
        size *= 2
    results = []
    for result, kind in ((flat, dtype), (index, dtypes.int64)):
        cut = slice_(result, (0, 0), (rows, length), (1, 1)).cast(dtype=kind)
        results.append(moveaxis(reshape(cut, front.shape), -1, axis))
    return tuple(results)


# --- sort -----------------------------------------------------------------------------------------------------------


def _sort_pairs(x: Array, *, axis: int = -1, descending: bool = False) -> Any:
    """Elements along `axis` in order, and their positions (int64)."""
    order = _sorted_positions(x, axis, descending)
    return np.take_along_axis(np.asarray(x), order, axis), order


def _infer_sort(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _axis(specs, params)
    params["descending"] = bool(params["descending"])
    return [(spec.dtype, spec.shape), (dtypes.int64, spec.shape)]


_SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((7,), 0),
    ((3, 5), 0),
    ((3, 5), -1),
    ((2, 3, 4), 1),
    ((2, 70), 1),
    ((1,), 0),
    ((3, 0), 1),
]


def _distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Elements far enough apart for finite differences, in random order; integer dtypes see many equal ones."""
    size = max(int(np.prod(shape)), 1)
    return rng.permutation(np.linspace(-3, 3, size))[: int(np.prod(shape))].reshape(shape)


_SPECIAL = np.array([[1.0, np.nan, -np.inf, 0.0, -0.0, np.inf, np.nan], [0.0] * 7])


def _sort_samples(rng: np.random.Generator) -> list[Sample]:
    plain = [Sample((_distinct(rng, s),), {"axis": a, "descending": d}) for s, a in _SHAPES for d in (False, True)]
    ties = rng.integers(-5, 5, (2, 5000)).astype(np.float64)
    long = Sample((ties,), {"axis": 1}, differentiable=False, note="long rows with equal elements")
    return [*plain, *(Sample((_SPECIAL,), {"axis": 1, "descending": d}, special=True) for d in (False, True)), long]


sort_pairs: OpFunction = declare_along_axis(
    _sort_pairs,
    name="sort_pairs",
    family="sorting",
    public=False,
    infer=_infer_sort,
    outputs=_OUTPUTS,
    decompose=_decomposed_sort,
    gradient=lambda g, indices, x_spec, *, axis: scatter_along_axis(g, indices, None, axis, x_spec.shape[axis]),
    samples=_sort_samples,
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    errors=[ErrorSample((np.zeros((2, 3)),), {"axis": 2}, ValueError, "axis 2 is out of range")],
)


@composite()
def sort(x: TensorLike, axis: int = -1, descending: bool = False, stable: bool | None = True) -> Any:
    """The elements along `axis` in ascending (or `descending`) order, always stably. NaN counts as the largest.

    >>> polyhal.sort(polyhal.tensor([3, 1, 2]), descending=True).tolist()
    [3, 2, 1]
    """
    return sort_pairs(x, axis, descending)[0]


@composite()
def argsort(x: TensorLike, axis: int = -1, descending: bool = False, stable: bool | None = True) -> Any:
    """Positions (int64) that sort `x` along `axis`, always stably: equal elements keep their order. NaN counts as largest.

    >>> polyhal.argsort(polyhal.tensor([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    return sort_pairs(x, axis, descending)[1]


# --- top k  ------------------------------------------------------------------------------------------------


def _topk(x: Array, *, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Any:  # noqa: A002
    """The `k` largest (or smallest) elements along `axis` and their positions (int64), always in order.

    Equal elements keep their order. NaN counts as the largest.
    """
    values, order = _sort_pairs(x, axis=axis, descending=largest)
    return np.take(values, np.arange(k), axis), np.take(order, np.arange(k), axis)


def _infer_topk(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _axis(specs, params)
    axis, k = params["axis"], params["k"]
    if not 0 <= k <= spec.shape[axis]:
        raise ValueError(f"k is {k}; expected 0 to {spec.shape[axis]}, the length of axis {axis}")
    params.update(largest=bool(params["largest"]), sorted=True)
    shape = (*spec.shape[:axis], k, *spec.shape[axis + 1 :])
    return [(spec.dtype, shape), (dtypes.int64, shape)]


def _decomposed_topk(x: TensorLike, *, k: int, axis: int, largest: bool, sorted: bool) -> Any:  # noqa: A002
    results = []
    for result in sort_pairs(x, axis, largest):
        lengths = tuple(k if i == axis else n for i, n in enumerate(result.shape))
        results.append(slice_(result, (0,) * x.ndim, lengths, (1,) * x.ndim))
    return tuple(results)


def _topk_samples(rng: np.random.Generator) -> list[Sample]:
    cases = [((7,), 0, 3), ((3, 5), 0, 3), ((3, 5), -1, 1), ((2, 3, 4), 1, 2), ((2, 70), 1, 5), ((3, 4), 1, 0)]
    plain = [Sample((_distinct(rng, s),), {"k": k, "axis": a, "largest": k != 2}) for s, a, k in cases]
    ties = rng.integers(-50, 50, (4, 3000)).astype(np.float64)
    long = Sample((ties,), {"k": 70, "axis": 1}, differentiable=False, note="long rows with equal elements")
    return [*plain, Sample((_SPECIAL,), {"k": 4, "axis": 1}, special=True), long]


topk: OpFunction = declare_along_axis(
    _topk,
    name="topk",
    family="sorting",
    infer=_infer_topk,
    outputs=_OUTPUTS,
    decompose=_decomposed_topk,
    gradient=lambda g, indices, x_spec, *, axis: scatter_along_axis(g, indices, None, axis, x_spec.shape[axis]),
    samples=_topk_samples,
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    errors=[ErrorSample((np.zeros((2, 3)),), {"k": 4, "axis": 1}, ValueError, "k is 4; expected 0 to 3")],
)
