"""Counts of numbers and of elements in bins: bincount, histc, histogram, histogramdd.

Sums by index add the counts up. Integers are counted in int64; other counts are sums of ones in the dtype of the input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.indexing.rows import scatter_rows
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import equal, greater, greater_equal, less_equal, logical_and
from polyhal.hal.ops.pointwise.selection import minimum, where
from polyhal.hal.ops.reductions.extrema import max_, min_
from polyhal.hal.ops.reductions.search import searchsorted
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.results import HistogramResult
from polyhal.hal.ops.tensor_like import TensorLike

_OUTSIDE = -1
"""A row number that sums by index skip."""


_WIDEST = dtypes.float64
"""The dtype in which PyTorch sums integer weights; float32 where a device has no such numbers."""


def _counted(index: TensorLike, weight: TensorLike, rows: int) -> Any:
    """Sums of the weights by index."""
    return reshape(scatter_rows(reshape(weight, (-1, 1)), reshape(index, (-1,)), rows), (rows,))


@composite(aten=".default")
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number from 0 to the largest occurs in the vector `x` of integers, or the sum of its `weights`.

    The result has at least `minlength` elements; its length is read from the device. Raises CaptureError in a captured
    step, and ValueError for negative numbers, other dtypes and other shapes.

    >>> polyhal.bincount(polyhal.tensor([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    if x.ndim != 1 or not x.dtype.is_integral:
        raise ValueError(f"[bincount] got {x.dtype.name}{list(x.shape)}; expected a vector of integers")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(f"[bincount] weights have shape {weights.shape}; expected {x.shape}")
    dispatch.require_execution(
        "bincount", "the length of the result is the largest number, which is only being recorded", fix="use histc"
    )
    x, length = x.cast(dtype=dtypes.int64), minlength
    if x.size:
        if int(min_(x).item()) < 0:
            raise ValueError("[bincount] x holds negative numbers; expected none")
        length = max(length, int(max_(x).item()) + 1)
    if weights is None:
        weights = full(x.shape, 1, dtypes.int64, device=x.device)
    elif not weights.dtype.is_floating_point:
        weights = weights.cast(dtype=_WIDEST if _WIDEST in x.device.capabilities.storage else dtypes.DEFAULT_FLOAT)
    if not length or not x.size:
        return full((length,), 0, weights.dtype, device=x.device)
    return _counted(x, weights, length)


@composite(aten=".default")
def histc(x: TensorLike, bins: int = 100, min: float = 0, max: float = 0) -> Any:  # noqa: A002
    """How many elements of `x` are in each of `bins` equal bins from `min` to `max`, in the dtype of `x`.

    If both are equal, the range is that of the elements. Elements outside, and NaN, are not counted. Raises ValueError
    unless there is a bin and the range is finite and in order.
    """
    if bins < 1 or not (math.isfinite(min) and math.isfinite(max) and min <= max):
        raise ValueError(f"[histc] {bins} bins from {min} to {max}; expected bins, and a finite range in order")
    flat = reshape(x, (-1,))
    if not flat.size:
        return full((bins,), 0, x.dtype, device=x.device)
    values = flat.cast(dtype=dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32)
    low, high = _range(values, min, max)
    inside = logical_and(greater_equal(values, low), less_equal(values, high))
    place = ((where(inside, values, low) - low) * bins / (high - low)).cast(dtype=dtypes.int64)
    index = where(inside, minimum(place, bins - 1), _OUTSIDE)
    return _counted(index, full(flat.shape, 1, dtypes.int64, device=x.device), bins).cast(dtype=x.dtype)


def _range(values: TensorLike, low: float, high: float) -> tuple[Any, Any]:
    """The ends of the range as tensors; of one point, widened by 1 to both sides as in PyTorch."""
    if low == high:
        low, high = min_(values), max_(values)
    else:
        low, high = (full((), float(v), values.dtype, device=values.device) for v in (low, high))
    margin = equal(low, high).cast(dtype=values.dtype)
    return low - margin, high + margin


def _edges(values: Any, bins: Any, ends: Any) -> Any:
    """The bins + 1 edges of equal bins, or the given ones."""
    if hasattr(bins, "spec"):
        return bins
    if not values.size and ends is None:
        low, high = (full((), v, values.dtype, device=values.device) for v in (0.0, 1.0))
    elif ends is None:
        low, high = _half_range(values, min_(values), max_(values))
    else:
        low, high = _half_range(values, *(full((), float(v), values.dtype, device=values.device) for v in ends))
    step = arange(0, bins + 1, 1, dtypes.float32, device=values.device).cast(dtype=values.dtype)
    # From either end, as linspace: the last edge is the end itself.
    width = (high - low) / bins
    return where(greater(step, bins / 2), high - width * (bins - step), low + width * step)


def _half_range(values: TensorLike, low: TensorLike, high: TensorLike) -> tuple[Any, Any]:
    """The ends, of one point widened by half to both sides."""
    margin = equal(low, high).cast(dtype=values.dtype) * 0.5
    return low - margin, high + margin


@composite(returns=Returns.COPY, aten=".bin_ct .bins_tensor")
def histogram(
    x: TensorLike,
    bins: Any = 100,
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: TensorLike | None = None,
    density: bool = False,
) -> HistogramResult:
    """Counts of elements by bin, and the edges of the bins.

    `bins` is a number of equal bins over `range` (by default that of the elements) or a vector of edges, which count to
    the bin above; the last bin includes both. `weight` counts for 1; `density` divides by the total and by the widths.
    """
    flat = reshape(x, (-1, 1))
    hist, (edges,) = histogramdd(
        flat, [bins], range=range, weight=None if weight is None else reshape(weight, (-1,)), density=density
    )
    return HistogramResult(hist, edges)


@composite(method=False, returns=Returns.COPY)
def histogramdd(
    x: TensorLike,
    bins: Any,
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: TensorLike | None = None,
    density: bool = False,
) -> tuple[Any, tuple[Any, ...]]:
    """Counts of points (..., D) by bins in D dimensions, and the edges of each dimension.

    `bins` is one number of bins, or for each dimension a number or a vector of edges; `range` holds both ends of each. See
    `histogram` for the rest. Raises ValueError for other numbers of dimensions.
    """
    axes = x.shape[-1]
    bins = [bins] * axes if isinstance(bins, int) else list(bins)
    if len(bins) != axes or (range is not None and len(range) != 2 * axes):
        raise ValueError(f"[histogramdd] bins or ends for another number of dimensions; expected {axes}")
    points = reshape(x, (math.prod(x.shape[:-1]), axes))
    count = points.shape[0]
    edges, index, inside = [], None, None
    for d, b in enumerate(bins):
        values = reshape(slice_(points, (0, d), (count, 1), (1, 1)), (count,))
        edge = _edges(values, b, None if range is None else range[2 * d : 2 * d + 2])
        edges.append(edge)
        number = edge.shape[0] - 1
        low, high = (slice_(edge, (at,), (1,), (1,)) for at in (0, number))
        within = logical_and(greater_equal(values, low), less_equal(values, high))
        place = minimum(searchsorted(edge, values, right=True) - 1, number - 1)
        index = place if index is None else index * number + place
        inside = within if inside is None else logical_and(inside, within)
    shape = tuple(e.shape[0] - 1 for e in edges)
    weight = full((count,), 1, x.dtype, device=x.device) if weight is None else reshape(weight, (count,))
    hist = reshape(_counted(where(inside, index, _OUTSIDE), weight, math.prod(shape)), shape)
    if density:
        hist = hist / sum_(hist)
        for d, edge in enumerate(edges):
            n = shape[d]
            widths = slice_(edge, (1,), (n,), (1,)) - slice_(edge, (0,), (n,), (1,))
            hist = hist / reshape(widths, tuple(-1 if i == d else 1 for i, _ in enumerate(shape)))
    return hist, tuple(edges)
