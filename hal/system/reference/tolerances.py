"""Error bounds: the allowed difference of a device's result from the float64 reference. All of them are derived here.

Let `u(d, m)` be the unit in the last place of dtype d at magnitude m: eps(d) * 2^floor(log2 m), at least the unit of
the smallest normal number. An op's `Tolerance` has these parts:

- `ulp`: a fixed number of operations that round once each has an error of at most `ulp * u(c, max(|reference|,
  floor))`, where c is the dtype in which the op computes: the result's own, or float32 for half-precision results.
- `terms`: a sum of n terms of magnitudes m_i, in any order, has an error of at most n * eps(c)/2 * sum(m_i) (Higham, Accuracy
  and Stability of Numerical Algorithms, 2002, section 4.2). With independent roundings it is within 4 sqrt(n) *
  eps(c)/2 * sum(m_i) with a probability above 0.999 (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019); the smaller of
  the two is allowed. sum(m_i) is the reference of the inputs' absolute values, if that is finite.
- Half-precision results are rounded once, at the end, and so is the reference before the comparison. Numbers that differ
  by less than a unit may round to neighbouring ones, so one unit of the half dtype is allowed in addition.
- A tolerance of 0 requires the correctly rounded reference, bit for bit, including the sign of zeros.

Inputs are rounded to the dtype under test before the reference is evaluated, so their rounding does not count. A result
below the smallest normal number may be flushed to zero. NaN must match NaN, and infinity the same infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType, finfo
from polyhal.hal.ops.samples import Tolerance

EXACT = Tolerance(0.0)
_PROBABILISTIC_FACTOR = 4.0
_MAX_UNITS = 1e300
"""Maximum error in units: the error of a result near 0 could overflow."""


class ResultError(AssertionError):
    """A device's result differs from the expected one. The text is complete in one line; reports use the parts."""

    def __init__(self, what: str, summary: str, place: str = "", got: str = "", expected: str = "") -> None:
        text = f"{what}: {summary}"
        super().__init__(f"{text}; first at {place}: got {got}, expected {expected}" if place else text)
        self.what = what
        """Call, with the dtypes, shapes and memory layouts of its inputs."""
        self.summary = summary
        self.place = place
        """Index of the first wrong element; empty if shape or dtype is wrong."""
        self.got = got
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Bound:
    """Allowed error of one result: an op's tolerance, and the number and magnitudes of accumulated terms."""

    tolerance: Tolerance
    terms: int = 0
    magnitudes: np.ndarray | None = None
    """Sums of the absolute terms, of the result's shape; None if they equal the result."""


Measure = Callable[[float], None]
"""Function that receives the largest error of a comparison, in units in the last place."""


def computing(dtype: DType) -> DType:
    """Return the dtype in which a result of float `dtype` is computed: at least float32."""
    return dtype if dtype.itemsize >= 4 else dtypes.float32


def unit(dtype: DType, magnitude: np.ndarray) -> np.ndarray:
    """Return the unit in the last place of float `dtype` at each magnitude, in float64."""
    info = finfo(dtype)
    clipped = np.clip(np.nan_to_num(np.abs(magnitude), nan=0.0, posinf=info.max), info.smallest_normal, info.max)
    return np.asarray(info.eps * np.exp2(np.frexp(clipped)[1] - 1.0))


def accumulated(terms: int) -> float:
    """Return the allowed error of a sum of `terms`, in eps/2 times the sum of magnitudes."""
    return min(float(terms), _PROBABILISTIC_FACTOR * float(np.sqrt(terms)))


def allowed(dtype: DType, expected: np.ndarray, bound: Bound) -> np.ndarray:
    """Return the largest allowed absolute error of each element of a float result. `expected` is in float64."""
    tolerance, inner = bound.tolerance, computing(dtype)
    if not tolerance.ulp and not bound.terms:
        return np.zeros(expected.shape)
    limit = tolerance.ulp * unit(inner, np.maximum(np.abs(expected), tolerance.floor))
    if bound.terms:
        size = np.abs(expected) if bound.magnitudes is None else np.maximum(np.abs(bound.magnitudes), np.abs(expected))
        size = np.maximum(np.where(np.isfinite(size), size, 0.0), tolerance.floor)
        limit = limit + accumulated(bound.terms) * finfo(inner).eps / 2 * size
    if dtype is not inner:
        limit = limit + unit(dtype, expected)
        if tolerance.rounded:
            limit = limit + tolerance.rounded / 2 * unit(dtype, np.maximum(np.abs(expected), tolerance.floor))
    return limit


@dataclass(frozen=True, slots=True)
class FloatErrors:
    """A float result and its reference, elementwise, in float64."""

    value: np.ndarray
    """Result."""
    near: np.ndarray
    """Reference, rounded to the dtype of the result."""
    target: np.ndarray
    """Reference of the error: rounded for half precision and overflows, else unrounded."""
    error: np.ndarray
    limit: np.ndarray
    """Largest allowed error."""
    dtype: DType

    @property
    def rounded(self) -> np.ndarray:
        """Return the mask of elements equal to the correctly rounded reference, up to the sign of zeros."""
        return np.asarray((self.value == self.near) | (np.isnan(self.value) & np.isnan(self.near)))

    @property
    def flushed(self) -> np.ndarray:
        """Return the mask of elements that are zero for a reference below the smallest normal number."""
        return np.asarray((self.value == 0) & (np.abs(self.target) < finfo(self.dtype).smallest_normal))


def float_errors(got: np.ndarray, expected: np.ndarray, dtype: DType, bound: Bound) -> FloatErrors:
    """Return the errors of the float result `got` against `expected`, and the allowed errors."""
    with np.errstate(all="ignore"):
        near = expected.astype(dtype.numpy).astype(np.float64)
        # An overflow in the dtype is infinite; otherwise float32 and float64 are compared with the unrounded reference.
        target = np.where(np.isfinite(near), expected.astype(np.float64) if dtype.itemsize >= 4 else near, near)
        value = got.astype(np.float64)
        return FloatErrors(value, near, target, np.abs(value - target), allowed(dtype, target, bound), dtype)


def check_close(
    got: np.ndarray, expected: Any, dtype: DType, bound: Bound, what: str, measure: Measure | None = None
) -> None:
    """Raise ResultError, with the first wrong element, unless `got` is within `bound` of the float64 `expected`.

    `measure` receives the error of float results, whether it is allowed or not (see `largest_error`).
    """
    expected = np.asarray(expected)
    if got.shape != expected.shape:
        raise ResultError(what, f"the result has shape {got.shape}; the reference has {expected.shape}")
    if not got.size:
        return
    if not dtype.is_floating_point:
        wrong = got != expected.astype(dtype.numpy)
        if wrong.any():
            summary = f"{int(wrong.sum())} of {got.size} elements differ; exact {dtype.name} expected"
            raise _failure(got, expected, wrong, what, summary)
        return
    found = float_errors(got, expected, dtype, bound)
    if measure is not None:
        measure(largest_error(dtype, found.target, found.error, bound))
    same = found.rounded
    if not bound.tolerance.ulp and not bound.terms:
        same &= np.isnan(found.value) | (np.signbit(found.value) == np.signbit(found.near))
    else:
        same |= (np.isfinite(found.error) & (found.error <= found.limit)) | found.flushed
    if not same.all():
        with np.errstate(all="ignore"):
            units = np.where(np.isfinite(found.error), found.error / unit(dtype, found.target), np.inf)
        worst = float(units[~same].max())
        summary = f"{int((~same).sum())} of {got.size} elements are off, by up to {worst:.3g} units of {dtype.name}"
        raise _failure(found.value, found.target, ~same, what, summary, found.limit)


def largest_error(dtype: DType, expected: np.ndarray, error: np.ndarray, bound: Bound) -> float:
    """Return the largest finite error in units in the last place, at the magnitude of the bound.

    The magnitude is the result's, the tolerance's floor if that is larger, and for sums the sum of the terms' magnitudes.
    """
    finite = np.isfinite(error)
    if not finite.any():
        return 0.0
    with np.errstate(all="ignore"):
        at = np.maximum(np.abs(expected), bound.tolerance.floor)
        if bound.magnitudes is not None and bound.terms:
            at = np.fmax(at, np.abs(bound.magnitudes))
        return min(float((error / unit(dtype, at))[finite].max()), _MAX_UNITS)


def _failure(
    got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, what: str, summary: str, limit: np.ndarray | None = None
) -> ResultError:
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    within = "" if limit is None else f" within {limit[index]:.3g}"
    place = tuple(int(i) for i in index)
    return ResultError(what, summary, str(place), _shown(got[index]), _shown(expected[index]) + within)


def _shown(value: Any) -> str:
    number = value.item()
    return f"{number:.9g}" if isinstance(number, float) else repr(number)
