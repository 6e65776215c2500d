"""Running extrema along one axis, `cummax` and `cummin` with their positions, and `logcumsumexp`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.along_axis import declare_along_axis
from polyhal.hal.ops.declare import Autocast, ErrorSample, OpFunction, Output, Sample, Specs, Tolerance, first_tensor
from polyhal.hal.ops.indexing.along_axis import scatter_along_axis
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.exponential import exp, log1p
from polyhal.hal.ops.pointwise.logic import equal, logical_and, logical_or, not_equal
from polyhal.hal.ops.pointwise.rounding import isinf
from polyhal.hal.ops.pointwise.selection import maximum, minimum, where
from polyhal.hal.ops.reductions.scan import prefix_scan, scan_terms, scanned_in, slice_along
from polyhal.hal.ops.tensor_like import Array, TensorLike

_ERRORS = [ErrorSample((np.zeros((2, 3)),), {"axis": 2}, ValueError, "axis 2 is out of range")]
_SPECIAL = np.array([[1.0, 3.0, 3.0, np.nan, 5.0, -np.inf], [-np.inf, -1.0, 0.0, np.inf, 2.0, np.inf]])


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    params["axis"] = normalize_axis(params["axis"], spec.ndim)
    return [(spec.dtype, spec.shape)]


def _infer_with_positions(specs: Specs, params: dict[str, Any]) -> list[Output]:
    (values,) = _infer(specs, params)
    return [values, (dtypes.int64, values[1])]


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases = [((7,), 0), ((2, 5, 3), 1), ((4, 300), 1), ((300, 20), 0), ((3, 0), 1)]
    drawn = [
        Sample((rng.permutation(np.linspace(-3, 3, int(np.prod(shape)))).reshape(shape),), {"axis": axis})
        for shape, axis in cases
    ]
    return [*drawn, Sample((_SPECIAL,), {"axis": 1}, special=True)]


# --- values ---------------------------------------------------------------------------------------------------------


def _running(name: str, doc: str, numpy: np.ufunc, combine: Callable[..., Any]) -> OpFunction:
    def reference(x: Array, *, axis: int) -> Any:
        return numpy.accumulate(np.asarray(x), axis=axis)

    return declare_along_axis(
        reference,
        name=name,
        doc=doc,
        family="scan",
        infer=_infer,
        decompose=prefix_scan(combine),
        samples=_samples,
        errors=_ERRORS,
        dtypes=dtypes.ALL,
        tolerance=Tolerance(0.0),
        public=False,
    )


running_max = _running("running_max", "Largest element up to each along `axis`; NaN after a NaN.", np.maximum, maximum)
running_min = _running("running_min", "Smallest element up to each along `axis`; NaN after a NaN.", np.minimum, minimum)


# --- values and positions -------------------------------------------------------------------------------------------


def _with_positions(name: str, doc: str, numpy: np.ufunc, running: OpFunction) -> OpFunction:
    """PyTorch's convention: the last of equal extrema, and of NaNs, counts."""

    def reference(x: Array, *, axis: int) -> tuple[Any, Any]:
        x = np.asarray(x)
        values = numpy.accumulate(x, axis=axis)
        at = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        is_extremum = (x == values) | ((x != x) & (values != values))
        return values, np.maximum.accumulate(np.where(is_extremum, at, 0), axis=axis)

    def decompose(x: TensorLike, *, axis: int) -> tuple[Any, Any]:
        values = running(x, axis)
        is_extremum = equal(x, values)
        if x.dtype.kind == "float":
            is_extremum = logical_or(is_extremum, logical_and(not_equal(x, x), not_equal(values, values)))
        lengths = tuple(-1 if i == axis else 1 for i in range(x.ndim))
        at = broadcast_to(reshape(arange(0, x.shape[axis], 1, dtypes.int32), lengths), x.shape)
        return values, running_max(where(is_extremum, at, 0), axis).cast(dtype=dtypes.int64)

    def gradient(g: TensorLike, indices: TensorLike, x_spec: Spec, *, axis: int) -> Any:
        return scatter_along_axis(g, indices, None, axis, x_spec.shape[axis])

    return declare_along_axis(
        reference,
        name=name,
        doc=doc,
        family="scan",
        infer=_infer_with_positions,
        outputs=("values", "indices"),
        decompose=decompose,
        gradient=gradient,
        samples=_samples,
        errors=_ERRORS,
        dtypes=dtypes.ALL,
        tolerance=Tolerance(0.0),
    )


cummax = _with_positions(
    "cummax",
    "Largest element up to each along `axis`, and its position (int64), the last of equal ones. NaN counts as largest.",
    np.maximum,
    running_max,
)
cummin = _with_positions(
    "cummin",
    "Smallest element up to each along `axis`, and its position (int64), the last of equal ones. NaN counts as smallest.",
    np.minimum,
    running_min,
)


# --- logarithms of sums ---------------------------------------------------------------------------------------------


def _logcumsumexp(x: Array, *, axis: int) -> Any:
    """`log(cumsum(exp(x)))` along `axis` without overflow."""
    return np.logaddexp.accumulate(np.asarray(x), axis=axis, dtype=scanned_in(x))


def _log_of_sum(a: TensorLike, b: TensorLike) -> Any:
    """`log(exp(a) + exp(b))`. Equal infinities have no difference to compute with."""
    top = maximum(a, b)
    same = logical_and(isinf(a), equal(a, b))
    return where(same, a, top + log1p(exp(-abs_(where(same, 0, a) - where(same, 0, b)))))


def _infer_float(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    if not spec.dtype.is_floating_point:
        raise TypeError(f"got {spec.dtype.name}; expected a floating-point tensor")
    return _infer(specs, params)


def _logcumsumexp_gradient(g: Any, x: Any, *, axis: int) -> Any:
    """Return for each element i the sum of g[j] exp(x[i] - m[j]) / s[j] over j >= i.

    m[j] is the largest element up to j, and s[j] the sum of exp(x[k] - m[j]) over k <= j: their logarithm with a large
    maximum would lose its digits. Both sums are scans with factors exp(m[i] - m[i + distance]), which are at most 1. The
    gradient is linear in g, so that it can be differentiated with respect to g.
    """
    axis %= len(x.shape)
    wide = x.cast(dtype=dtypes.float32) if x.dtype.itemsize == 2 else x
    largest = running_max(wide, axis).detach()
    reached = not_equal(largest, -math.inf)
    largest = where(reached, largest, 0)
    terms = exp(wide - largest)
    factors = _factors(largest, reached, axis)
    sums = _scan_with_factors(terms, factors, axis, backward=False)
    shares = where(reached, g.cast(dtype=wide.dtype) / where(reached, sums, 1), 0)
    return (terms * _scan_with_factors(shares, factors, axis, backward=True)).cast(dtype=x.dtype)


def _factors(largest: TensorLike, reached: TensorLike, axis: int) -> list[Any]:
    """Return exp(largest[i] - largest[i + distance]) for each power of 2 below the length; 0 where i is not `reached`."""
    length, factors = largest.shape[axis], []
    for round_ in range(max(length - 1, 0).bit_length()):
        rest = length - (1 << round_)
        near, far = (slice_along(largest, axis, start, rest) for start in (0, 1 << round_))
        factors.append(where(slice_along(reached, axis, 0, rest), exp(near - far), 0))
    return factors


def _scan_with_factors(x: TensorLike, factors: list[TensorLike], axis: int, *, backward: bool) -> Any:
    """Return prefix sums (suffix sums, if `backward`) in which an element has the factor between its place and the sum's."""
    length = x.shape[axis]
    for round_, factor in enumerate(factors):
        distance, rest = 1 << round_, length - (1 << round_)
        near, far = slice_along(x, axis, 0, rest), slice_along(x, axis, distance, rest)
        if backward:
            x = concat((near + factor * far, slice_along(x, axis, rest, distance)), axis)
        else:
            x = concat((slice_along(x, axis, 0, distance), far + factor * near), axis)
    return x


logcumsumexp: OpFunction = declare_along_axis(
    _logcumsumexp,
    name="logcumsumexp",
    family="scan",
    infer=_infer_float,
    decompose=prefix_scan(_log_of_sum),
    gradient=_logcumsumexp_gradient,
    samples=lambda rng: [
        *(Sample((rng.uniform(-3, 3, s),), {"axis": a}) for s, a in [((7,), 0), ((2, 5, 3), 1), ((4, 70), 1)]),
        Sample((np.array([-np.inf, -np.inf, 1.0, -np.inf, 300.0]),), {"axis": 0}, special=True),
    ],
    errors=_ERRORS,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(4.0, floor=1.0, terms=scan_terms),
    autocast=Autocast.FLOAT32,
)
