"""Order statistics under PyTorch's names and arguments: kthvalue, median, mode, quantile, topk's relatives. All sort.

Where PyTorch returns values and positions, so do these. Gradients go to the positions; without an axis, equal medians
share them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import OpFunction, Sample, Tolerance
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.keywords import MISSING
from polyhal.hal.ops.layout.axes import moveaxis
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.logic import equal, less, logical_and, logical_or, not_equal
from polyhal.hal.ops.pointwise.rounding import ceil, floor, isinf, round_
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.reductions.positions import argmax
from polyhal.hal.ops.reductions.reduction import Axis, element_count, reduced_shape, reduction, unreduced
from polyhal.hal.ops.reductions.scan_extrema import running_max
from polyhal.hal.ops.reductions.shares import shared
from polyhal.hal.ops.reductions.sort import sort, sort_pairs
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.results import SelectionResult
from polyhal.hal.ops.returns import own
from polyhal.hal.ops.tensor_like import Array, TensorLike

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _as_vector(x: TensorLike) -> Any:
    return x if x.ndim else reshape(x, (1,))


def _picked(
    x: TensorLike, order: TensorLike, place: TensorLike, axis: int, keepdims: bool, ndim: int
) -> SelectionResult:
    """The elements at a place of the sorted order, (..., 1, ...) along `axis`, and their positions in `x`."""
    index = take_along_axis(order, place, axis)
    shape = reduced_shape(x.shape, (axis,), keepdims) if ndim else ()
    return SelectionResult(own(reshape(take_along_axis(x, index, axis), shape)), reshape(index, shape))


def _count_nan(x: TensorLike, axis: int) -> Any:
    """How many elements along `axis` are NaN, with the axis at length 1."""
    return sum_(not_equal(x, x), axis, True)


def _filled(like: TensorLike, shape: tuple[int, ...], value: int) -> Any:
    return full(shape, value, dtypes.int64, device=like.device)


# --- one element of the sorted order --------------------------------------------------------------------------------


@composite()
def kthvalue(x: TensorLike, k: int, dim: int = -1, keepdim: bool = False) -> SelectionResult:
    """The `k`-th smallest element along `dim`, counted from 1, and its position (int64). NaN counts as the largest.

    Raises ValueError unless k is 1 to the length of the axis.
    """
    ndim, x = x.ndim, _as_vector(x)
    axis = normalize_axis(dim, x.ndim)
    if not 1 <= k <= x.shape[axis]:
        raise ValueError(f"[kthvalue] k is {k}; expected 1 to {x.shape[axis]}, the length of axis {axis}")
    order = sort_pairs(x, axis, False)[1]
    return _picked(x, order, _filled(x, reduced_shape(x.shape, (axis,), True), k - 1), axis, keepdim, ndim)


@composite()
def msort(x: TensorLike) -> Any:
    """The elements along the first axis in ascending order. NaN counts as the largest."""
    return sort(x, 0)


@composite()
def median(
    x: TensorLike, dim: int | None = None, keepdim: bool = False, *, axis: Any = MISSING, keepdims: bool = False
) -> Any:
    """The median of all elements or, given `dim`, medians along it and their positions (int64).

    Of an even number of elements it is the lower one of the middle two. NaN if any element is NaN. Given `axis`, a number or
    None, the result is NumPy's: the mean of the middle two, without positions.

    >>> polyhal.median(polyhal.tensor([3, 1, 2])).item()
    2
    """
    if axis is not MISSING:
        return quantile(x, 0.5, axis, keepdims)
    return _median(x, dim, keepdim, False)


@composite()
def nanmedian(x: TensorLike, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of the elements that are not NaN; see `median`."""
    return _median(x, dim, keepdim, True)


def _median(x: TensorLike, dim: int | None, keepdim: bool, skip_nan: bool) -> Any:
    if dim is None:
        return middle_value(x, None, False, skip_nan)
    ndim, x = x.ndim, _as_vector(x)
    axis = normalize_axis(dim, x.ndim)
    order = sort_pairs(x, axis, False)[1]
    return _picked(x, order, _middle_place(x, axis, skip_nan), axis, keepdim, ndim)


def _middle_place(x: TensorLike, axis: int, skip_nan: bool) -> Any:
    """Where the median is in the sorted order, (..., 1, ...) along `axis`: NaNs are at its end."""
    length = x.shape[axis]
    if not length:
        raise ValueError("[median] the median of no elements is undefined")
    if x.dtype.kind != "float":
        return _filled(x, reduced_shape(x.shape, (axis,), True), (length - 1) // 2)
    count = _count_nan(x, axis)
    if skip_nan:
        return maximum(length - 1 - count, 0) // 2
    return where(equal(count, 0), (length - 1) // 2, length - count)


def _np_middle(x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False, skip_nan: bool = False) -> Any:
    x = np.asarray(x)
    rest = [i for i in range(x.ndim) if axis is not None and i not in np.atleast_1d(axis) % x.ndim]
    rows = x.transpose(*rest, *(i for i in range(x.ndim) if i not in rest)).reshape(*(x.shape[i] for i in rest), -1)
    ordered, missing = np.sort(rows, -1), np.isnan(rows).sum(-1)
    length = rows.shape[-1]
    place = np.where(skip_nan | (missing == 0), np.maximum(length - 1 - missing, 0) // 2, length - 1)
    values = np.take_along_axis(ordered, place[..., None], -1)[..., 0]
    return values.reshape([1 if i not in rest else n for i, n in enumerate(x.shape)]) if keepdims else values


def _middle_decomposed(x: Any, *, axis: Any, keepdims: bool, skip_nan: bool) -> Any:
    outer = reduced_shape(x.shape, axis, False)
    rest = tuple(i for i in range(x.ndim) if i not in axis)
    length = element_count(x.spec, axis)
    ordered = sort(reshape(x.permute((*rest, *axis)), (*outer, length)), -1)
    if x.dtype.kind == "float":
        missing = _count_nan(ordered, -1)
        place = maximum(length - 1 - missing, 0) // 2
        place = place if skip_nan else where(equal(missing, 0), place, length - 1)
    else:
        place = full((*outer, 1), (length - 1) // 2, dtypes.int64)
    return reshape(take_along_axis(ordered, place, -1), reduced_shape(x.shape, axis, keepdims))


def _middle_gradient(
    g: TensorLike, x: TensorLike, out: TensorLike, x_spec: Spec, *, axis: Axis, keepdims: bool, skip_nan: bool
) -> Any:
    """Equal elements share the gradient equally, as in PyTorch."""
    out = unreduced(out, x_spec, axis, keepdims)
    chosen = logical_or(equal(x, out), logical_and(not_equal(x, x), not_equal(out, out)))
    return shared(unreduced(g, x_spec, axis, keepdims), chosen, axis)


def _middle_samples(rng: np.random.Generator) -> list[Sample]:
    def distinct(*shape: int) -> Any:
        return rng.permutation(np.linspace(-3, 3, math.prod(shape))).reshape(shape)

    return [
        Sample((distinct(7),), {"axis": None}),
        Sample((distinct(2, 3, 4),), {"axis": (0, 2), "keepdims": True}),
        Sample((distinct(),), {"axis": None}),
        Sample((np.array([3.0, np.nan, 1.0, -np.inf]),), {"axis": None}, special=True),
        Sample((np.array([3.0, np.nan, 1.0, -np.inf]),), {"axis": None, "skip_nan": True}, special=True),
    ]


middle_value: OpFunction = reduction(
    "middle_value",
    _np_middle,
    "The lower median over `axis`; with `skip_nan`, of the elements that are not NaN.",
    result=lambda d: d,
    decompose=_middle_decomposed,
    gradient=_middle_gradient,
    samples=_middle_samples,
    dtypes=(dtypes.float32, dtypes.float16, dtypes.float64, dtypes.int32),
    tolerance=Tolerance(0.0),
    public=False,
)


# --- the most frequent element --------------------------------------------------------------------------------------


@composite()
def mode(x: TensorLike, dim: int = -1, keepdim: bool = False) -> SelectionResult:
    """The most frequent element along `dim`, the smallest of several, and its last position (int64).

    Raises ValueError for an axis of length 0.
    """
    ndim, x = x.ndim, _as_vector(x)
    axis = normalize_axis(dim, x.ndim)
    if not x.shape[axis]:
        raise ValueError("[mode] the mode of no elements is undefined")
    values, order = sort_pairs(x, axis, False)
    front = moveaxis(values, axis, -1)
    length = front.shape[-1]
    lead, zero, one = front.shape[:-1], (0,) * front.ndim, (1,) * front.ndim
    later = slice_(front, (*zero[:-1], 1), (*lead, length - 1), one)
    changes = not_equal(later, slice_(front, zero, (*lead, length - 1), one))
    starts = concat((full((*lead, 1), True, dtypes.bool_, device=x.device), changes), -1)
    at = broadcast_to(arange(0, length, 1, dtypes.int32, device=x.device), front.shape)
    run = at - running_max(where(starts, at, 0), -1)
    place = moveaxis(argmax(run, -1, True), -1, axis)
    return _picked(x, order, place, axis, keepdim, ndim)


# --- quantiles ------------------------------------------------------------------------------------------------------


@composite()
def quantile(
    x: TensorLike,
    q: TensorLike | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:
    """Quantiles `q` (a number or a vector, 0 to 1) of floating-point `x` along `dim`, or of all elements.

    A vector's axis comes first in the result. Between two elements, `interpolation` is linear, lower, higher, midpoint or
    nearest. NaN where any element is NaN.

    >>> polyhal.quantile(polyhal.tensor([1.0, 2.0, 3.0]), 0.5).item()
    2.0
    """
    return _quantile("quantile", x, q, dim, keepdim, interpolation, False)


@composite()
def nanquantile(
    x: TensorLike,
    q: TensorLike | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:
    """Quantiles of the elements that are not NaN; see `quantile`."""
    return _quantile("nanquantile", x, q, dim, keepdim, interpolation, True)


def _quantile(op: str, x: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool) -> Any:
    if interpolation not in _INTERPOLATIONS:
        raise ValueError(f"[{op}] interpolation is {interpolation!r}; expected one of {', '.join(_INTERPOLATIONS)}")
    if not x.dtype.is_floating_point:
        raise ValueError(f"[{op}] got {x.dtype.name}; expected a floating-point tensor")
    if isinstance(q, (int, float)) and not 0 <= q <= 1:
        raise ValueError(f"[{op}] q is {q}; expected 0 to 1")
    if x.dtype.itemsize < 4:  # ranks beyond 2,048 are not exact in half precision
        q = q.cast(dtype=dtypes.float32) if hasattr(q, "spec") else q
        return _quantile(op, x.cast(dtype=dtypes.float32), q, dim, keepdim, interpolation, skip_nan).cast(dtype=x.dtype)
    shape = reduced_shape(x.shape, tuple(range(x.ndim)) if dim is None or not x.ndim else (dim % x.ndim,), keepdim)
    rows = reshape(x, (-1,)) if dim is None or not x.ndim else moveaxis(x, dim, -1)
    if not rows.shape[-1]:
        raise ValueError(f"[{op}] the quantile of no elements is undefined")
    ordered = sort(rows, -1)
    lead, length = ordered.shape[:-1], ordered.shape[-1]
    missing = _count_nan(ordered, -1)
    if not hasattr(q, "spec"):
        q = full((), float(q), x.dtype, device=x.device)
    count = maximum(length - missing, 1) if skip_nan else full((*lead, 1), length, dtypes.int64, device=x.device)
    ranks = reshape(q, (-1,)) * (count - 1).cast(dtype=x.dtype)
    if not skip_nan:
        ranks = where(equal(missing, 0), ranks, length - 1)
    values = _interpolated(ordered, ranks, interpolation)
    if not q.ndim:
        return own(reshape(values, shape))
    return own(reshape(moveaxis(values, -1, 0), (q.shape[0], *shape)))


def _interpolated(ordered: Any, ranks: Any, interpolation: str) -> Any:
    """Elements at fractional positions along the last axis."""
    if interpolation in ("lower", "higher", "nearest"):
        ranks = {"lower": floor, "higher": ceil, "nearest": round_}[interpolation](ranks)
        return take_along_axis(ordered, ranks.cast(dtype=dtypes.int64), -1)
    below = floor(ranks)
    weight = ranks - below if interpolation == "linear" else 0.5 * not_equal(ranks, below).cast(dtype=ranks.dtype)
    low = take_along_axis(ordered, below.cast(dtype=dtypes.int64), -1)
    high = take_along_axis(ordered, ceil(ranks).cast(dtype=dtypes.int64), -1)
    # The difference of equal infinities is NaN.
    step = where(logical_and(isinf(low), equal(low, high)), 0, high - low)
    # Where the weight is 0, an infinite step is ignored. The sum starts at the nearer element, so that an infinite farther
    # one is not subtracted from itself.
    near_low = low + where(equal(weight, 0), 0, weight * step)
    return where(less(weight, 0.5), near_low, high - (1.0 - weight) * step)
