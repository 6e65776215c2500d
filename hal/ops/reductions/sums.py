"""Sums, products, means, variances and log-sum-exp over any axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, normalize_axes
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import Autocast, Sample, Tolerance, Trait
from polyhal.hal.ops.layout.views import reshape
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


def _sum_dtype(d: DType) -> DType:
    return d if d.kind == "float" else dtypes.uint64 if d.kind == "uint" else dtypes.int64


def _in_float(x: Any) -> Any:
    return x if x.dtype.kind == "float" else x.cast(dtype=dtypes.DEFAULT_FLOAT)


sum_ = reduction(
    "sum",
    lambda x, *, axis=None, keepdims=False: np.sum(x, axis=axis, keepdims=keepdims),
    "Sum over `axis` (all axes by default). Integers and bool sum in 64 bits.",
    result=_sum_dtype,
    core=True,
    empty=True,
    gradient=lambda g, x_spec, *, axis, keepdims: unreduced(g, x_spec, axis, keepdims).broadcast_to(x_spec.shape),
    dtypes=dtypes.ALL,
    traits=Trait.FUSIBLE_REDUCTION,
    autocast=Autocast.FLOAT32,
)


def _prod_gradient(g: Any, x: Any, x_spec: Spec, *, axis: Axis, keepdims: bool) -> Any:
    """Exact with zeros: a single zero receives the product of the others."""
    zero = equal(x, 0)
    product, zeros = prod(where(zero, 1, x), axis, True), sum_(zero, axis, True)
    others = where(equal(zeros, 0), product / where(zero, 1, x), where(zero, where(equal(zeros, 1), product, 0), 0))
    return unreduced(g, x_spec, axis, keepdims) * others


prod = reduction(
    "prod",
    lambda x, *, axis=None, keepdims=False: np.prod(x, axis=axis, keepdims=keepdims),
    "Product over `axis`.",
    result=_sum_dtype,
    core=True,
    empty=True,
    gradient=_prod_gradient,
    domain=(0.8, 1.25),
    autocast=Autocast.FLOAT32,
)


def _mean(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return sum_(_in_float(x), axis, keepdims) * (1.0 / max(element_count(x.spec, axis), 1))


def _mean_gradient(g: Any, x_spec: Spec, *, axis: Axis, keepdims: bool) -> Any:
    share = unreduced(g, x_spec, axis, keepdims) * (1.0 / max(element_count(x_spec, axis), 1))
    return share.broadcast_to(x_spec.shape)


mean = reduction(
    "mean",
    lambda x, *, axis=None, keepdims=False: np.mean(x, axis=axis, keepdims=keepdims),
    "Arithmetic mean over `axis`.",
    result=dtypes.to_float,
    decompose=_mean,
    gradient=_mean_gradient,
    tolerance=Tolerance(3.0, terms=reduced_terms),
    traits=Trait.FUSIBLE_REDUCTION,
    autocast=Autocast.FLOAT32,
)


def _var(x: Any, *, axis: Any, keepdims: bool, correction: float) -> Any:
    x = _in_float(x)
    centred = x - mean(x, axis, True)
    divisor = element_count(x.spec, axis) - correction
    return sum_(centred * centred, axis, keepdims) * (1.0 / divisor if divisor > 0 else math.inf)


def _var_gradient(g: Any, x: Any, x_spec: Spec, *, axis: Any, keepdims: bool, correction: float) -> Any:
    divisor = element_count(x_spec, axis) - correction
    scale = 2.0 / divisor if divisor > 0 else math.inf
    return (unreduced(g, x_spec, axis, keepdims) * scale) * (x - mean(x, axis, True))


def _np_var(x: Any, *, axis: Any = None, keepdims: bool = False, correction: float = 0) -> Any:
    return np.var(x, axis=axis, keepdims=keepdims, ddof=correction)


def _var_samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], Axis, float]] = [
        ((7,), None, 0),
        ((3, 5), 0, 1),
        ((3, 5), -1, 0),
        ((2, 3, 4), (0, 2), 1),
        ((4, 300), 1, 0),
    ]
    return [
        Sample((rng.uniform(-2, 2, s) + 1.0,), {"axis": a, "keepdims": bool(c), "correction": c}) for s, a, c in cases
    ]


var = reduction(
    "var",
    _np_var,
    "Variance over `axis`, divided by n - `correction`.",
    result=dtypes.to_float,
    decompose=_var,
    gradient=_var_gradient,
    samples=_var_samples,
    # The floor is for equal elements, whose variance is 0 but for the square of the mean's rounding.
    tolerance=Tolerance(8.0, floor=1e-3, terms=reduced_terms),
    autocast=Autocast.FLOAT32,
)


@composite()
def std(x: Any, axis: Axis = None, keepdims: bool = False, correction: float = 0) -> Any:
    """Standard deviation over `axis`, from the sum of squares divided by n - `correction`."""
    return var(x, axis, keepdims, correction).sqrt()


def _np_logsumexp(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    out = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def _logsumexp(x: Any, *, axis: Any, keepdims: bool) -> Any:
    x = _in_float(x)
    top = max_(x, axis, True)
    top = where(isfinite(top), top, 0.0)
    out = log(sum_(exp(x - top), axis, True)) + top
    return out if keepdims else reshape(out, reduced_shape(x.shape, normalize_axes(axis, x.ndim), False))


def _logsumexp_gradient(g: Any, x: Any, out: Any, x_spec: Spec, *, axis: Axis, keepdims: bool) -> Any:
    return unreduced(g, x_spec, axis, keepdims) * exp(x - unreduced(out, x_spec, axis, keepdims))


logsumexp = reduction(
    "logsumexp",
    _np_logsumexp,
    "`log(sum(exp(x)))` over `axis` without overflow.",
    result=dtypes.to_float,
    decompose=_logsumexp,
    gradient=_logsumexp_gradient,
    tolerance=Tolerance(8.0, floor=1.0, terms=reduced_terms),
    dtypes=dtypes.FLOATS,
    autocast=Autocast.FLOAT32,
)
