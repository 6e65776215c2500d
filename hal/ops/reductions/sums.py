"""Sums, products, means and log-sum-exp over any axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, normalize_axes
from polyhal.hal.ops.declare import Autocast, Names, Tolerance, Trait
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.cast import in_dtype
from polyhal.hal.ops.pointwise.constant import zeros
from polyhal.hal.ops.pointwise.exponential import exp, log
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.rounding import isfinite
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_
from polyhal.hal.ops.reductions.reduction import (
    Axis,
    element_count,
    reduced_shape,
    reduced_terms,
    reduction,
    unreduced,
)
from polyhal.hal.ops.tensor_like import Array, TensorLike


def sum_dtype(d: DType) -> DType:
    """The dtype of a sum: integers and bool sum in 64 bits."""
    return d if d.kind == "float" else dtypes.uint64 if d.kind == "uint" else dtypes.int64


_MANY = 1024
"""Terms, along other axes than the last, beyond which NumPy sums in float64: it adds them one after the other, not in pairs."""


def wide_terms(x: Array, axis: tuple[int, ...] | None) -> dict[str, Any]:
    """Return the `dtype` argument of a NumPy reduction over `axis` if many terms of float32 would lose digits."""
    x = np.asarray(x)
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    terms = math.prod(x.shape[a] for a in axes if a != x.ndim - 1)
    return {"dtype": np.float64} if x.dtype == np.float32 and terms > _MANY else {}


def in_float(x: Any) -> Any:
    """`x`, in the default float dtype unless it is floating point or complex."""
    return x if x.dtype.kind in ("float", "complex") else x.cast(dtype=dtypes.DEFAULT_FLOAT)


sum_ = reduction(
    "sum",
    lambda x, *, axis=None, keepdims=False: np.sum(x, axis=axis, keepdims=keepdims, **wide_terms(x, axis)),
    "Sum over `axis` (all axes by default). Integers and bool sum in 64 bits.",
    result=sum_dtype,
    core=True,
    empty=True,
    gradient=lambda g, x_spec, *, axis, keepdims: unreduced(g, x_spec, axis, keepdims).broadcast_to(x_spec.shape),
    dtypes=dtypes.ALL,
    traits=Trait.FUSIBLE_REDUCTION,
    casts=True,
    autocast=Autocast.FLOAT32,
)


def _prod_gradient(g: TensorLike, x: TensorLike, x_spec: Spec, *, axis: Axis, keepdims: bool) -> Any:
    """Each element's share is the product of the others, exact with zeros, and so is its derivative.

    Where that derivative is not zero at most two elements are zero, and their sum replaces their factors.
    """
    zero = equal(x, 0)
    usual = where(zero, 1, x)
    product, zeros, rest = prod(usual, axis, True), sum_(zero, axis, True), sum_(where(zero, x, 0), axis, True)
    of_zero = where(equal(zeros, 1), 1, where(equal(zeros, 2), rest - x, 0))
    of_others = where(equal(zeros, 0), 1, where(equal(zeros, 1), rest, 0))
    return unreduced(g, x_spec, axis, keepdims) * where(zero, product * of_zero, product / usual * of_others)


def _np_prod(x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    x = np.asarray(x)
    return np.prod(x, axis=axis, keepdims=keepdims, dtype=np.float64 if x.dtype == np.float32 else None)


prod = reduction(
    "prod",
    _np_prod,
    "Product over `axis`.",
    result=sum_dtype,
    core=True,
    empty=True,
    gradient=_prod_gradient,
    domain=(0.8, 1.25),
    casts=True,
    autocast=Autocast.FLOAT32,
)


def _mean(x: TensorLike, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    count = element_count(x.spec, axis)
    return sum_(in_float(x), axis, keepdims) * (1.0 / count if count else math.nan)


def _mean_gradient(g: TensorLike, x_spec: Spec, *, axis: Axis, keepdims: bool) -> Any:
    share = unreduced(g, x_spec, axis, keepdims) * (1.0 / max(element_count(x_spec, axis), 1))
    return share.broadcast_to(x_spec.shape)


mean = reduction(
    "mean",
    lambda x, *, axis=None, keepdims=False: np.mean(x, axis=axis, keepdims=keepdims, **wide_terms(x, axis)),
    "Arithmetic mean over `axis`; NaN of no elements.",
    result=dtypes.to_float,
    empty=True,
    core=True,
    decompose=_mean,
    gradient=_mean_gradient,
    tolerance=Tolerance(3.0, terms=reduced_terms),
    traits=Trait.FUSIBLE_REDUCTION,
    casts=True,
    autocast=Autocast.FLOAT32,
)


def _np_logsumexp(x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    x = np.asarray(x)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    out = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def _logsumexp(x: TensorLike, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    x = in_float(x)
    if not element_count(x.spec, axis):
        return log(sum_(x, axis, keepdims))
    top = max_(x, axis, True)
    top = where(isfinite(top), top, 0.0)
    out = log(sum_(exp(x - top), axis, True)) + top
    return out if keepdims else reshape(out, reduced_shape(x.shape, normalize_axes(axis, x.ndim), False))


def _logsumexp_gradient(g: TensorLike, x: TensorLike, x_spec: Spec, *, axis: Axis, keepdims: bool) -> Any:
    """Return softmax by its own sum, because a large element absorbs the logarithm in the result.

    The sum may exceed the range of half precision.
    """
    if not x_spec.size:
        return zeros(x_spec)
    x = in_dtype(x, dtypes.accumulator(x.dtype))
    top = max_(x, axis, True)
    e = exp(x - where(isfinite(top), top, 0.0))
    return in_dtype(unreduced(g, x_spec, axis, keepdims) / sum_(e, axis, True) * e, g.dtype)


logsumexp = reduction(
    "logsumexp",
    _np_logsumexp,
    "`log(sum(exp(x)))` over `axis` without overflow; -infinity of no elements.",
    result=dtypes.to_float,
    empty=True,
    decompose=_logsumexp,
    gradient=_logsumexp_gradient,
    tolerance=Tolerance(8.0, floor=1.0, terms=reduced_terms),
    dtypes=dtypes.FLOATS,
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)
