"""Counts, and sums that skip NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import Autocast, OpFunction, Sample, Tolerance
from polyhal.hal.ops.pointwise.logic import equal, not_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_, min_
from polyhal.hal.ops.reductions.reduction import reduced_terms, reduction
from polyhal.hal.ops.reductions.sums import sum_, sum_dtype
from polyhal.hal.ops.results import AminmaxResult
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.uniform(-2, 2, (3, 5))
    holes = np.where(rng.random((3, 5)) < 0.4, np.nan, x)
    return [
        Sample((x,), {"axis": (0, 1)}),
        Sample((rng.uniform(-2, 2, (2, 70)),), {"axis": -1, "keepdims": True}),
        Sample((np.zeros((0, 2)),), {"axis": 0}),
        Sample((holes,), {"axis": 0}, special=True),
    ]


nansum: OpFunction = reduction(
    "nansum",
    lambda x, *, axis=None, keepdims=False: np.nansum(x, axis=axis, keepdims=keepdims),
    "Sum over `axis` of the elements that are not NaN.",
    result=sum_dtype,
    empty=True,
    decompose=lambda x, *, axis, keepdims: sum_(where(equal(x, x), x, 0), axis, keepdims),
    samples=_samples,
    autocast=Autocast.FLOAT32,
    casts=True,
)


def _np_nanmean(x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    count = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)
    with np.errstate(invalid="ignore"):
        return np.nansum(x, axis=axis, keepdims=keepdims) / count.astype(np.asarray(x).dtype)


nanmean: OpFunction = reduction(
    "nanmean",
    _np_nanmean,
    "Arithmetic mean over `axis` of the elements that are not NaN; NaN if there is none.",
    result=dtypes.to_float,
    empty=True,
    decompose=lambda x, *, axis, keepdims: (
        nansum(x, axis, keepdims) / sum_(equal(x, x), axis, keepdims).cast(dtype=dtypes.to_float(x.dtype))
    ),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(4.0, terms=reduced_terms),
    autocast=Autocast.FLOAT32,
    casts=True,
)
count_nonzero: OpFunction = reduction(
    "count_nonzero",
    lambda x, *, axis=None, keepdims=False: np.count_nonzero(x, axis=axis, keepdims=keepdims),
    "How many elements over `axis` are not 0 (int64).",
    result=lambda d: dtypes.int64,
    empty=True,
    decompose=lambda x, *, axis, keepdims: sum_(not_equal(x, 0), axis, keepdims),
    samples=_samples,
    dtypes=(dtypes.float32, dtypes.int32, dtypes.bool_),
    tolerance=Tolerance(0.0),
)


def _axes(dim: Sequence[int] | int | None) -> Any:
    """PyTorch's `dim`, whose empty list names all axes."""
    return None if dim is None or dim == () or dim == [] else dim


@composite()
def amax(x: TensorLike, dim: Any = (), keepdim: bool = False) -> Any:
    """Largest element over one or several axes, all by default; equal ones share the gradient. NaN if any is NaN."""
    return max_(x, _axes(dim), keepdim)


@composite()
def amin(x: TensorLike, dim: int | Sequence[int] | None = (), keepdim: bool = False) -> Any:
    """Smallest element over one or several axes, all by default; equal ones share the gradient. NaN if any is NaN."""
    return min_(x, _axes(dim), keepdim)


@composite()
def aminmax(x: TensorLike, *, dim: int | None = None, keepdim: bool = False) -> AminmaxResult:
    """Smallest and largest element over `dim`, or of all."""
    return AminmaxResult(min_(x, dim, keepdim), max_(x, dim, keepdim))
