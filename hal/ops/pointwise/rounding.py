"""Rounding, integer division and remainder, and tests for NaN and infinity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.ops.declare import Names, OpFunction, Sample, Tolerance
from polyhal.hal.ops.pointwise.arithmetic import abs_, divide, sign
from polyhal.hal.ops.pointwise.constant import zeros
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.logic import equal, less, logical_and, logical_not, logical_or, not_equal
from polyhal.hal.ops.pointwise.promotion import in_common_dtype
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _truncating_divide(x: Array, y: Array) -> Any:
    x, y = np.asarray(x), np.asarray(y)
    wide = np.result_type(x, y)
    quotient = np.floor_divide(np.abs(x.astype(wide)), np.abs(y.astype(wide)))
    return np.where((x < 0) != (y < 0), -quotient, quotient) if wide.kind == "i" else quotient


def _division_samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.integers(0, 100, (33,)), rng.integers(1, 9, (33,))))]


truncating_divide = elementwise(
    "truncating_divide",
    _truncating_divide,
    "Integer quotient rounded towards zero, as in C.",
    promotion="integral",
    samples=_division_samples,
    dtypes=dtypes.INTEGERS,
)


_SPLIT: dict[str, float] = {"float64": 2.0**27 + 1, "float32": 2.0**12 + 1}
"""Factors that split numbers in two halves, whose products are exact (Dekker, Numerische Mathematik 18, 1971)."""
_STEPS = 3
"""Steps of a division. Each one finds as many bits of the quotient as a number has, in all more than 60."""


def _halves(x: TensorLike, dtype: DType) -> tuple[Any, Any]:
    high = x * _SPLIT[dtype.name]
    high = high - (high - x)
    return high, x - high


def _fmod_decomposed(x: TensorLike, y: TensorLike) -> Any:
    """Return the remainder of floats with the sign of `x`, for devices without one. It is exact for quotients below 2^60.

    The rounding error of each product of quotient and divisor is subtracted, too.
    """
    if not _is_float(x, y):
        return x - truncating_divide(x, y) * y
    dtype = (x if hasattr(x, "dtype") else y).dtype
    size, divisor = abs_(x), abs_(y)
    scale = where(less(2.0**60, divisor), 2.0**-64, 1.0).cast(dtype=dtype)  # splitting must not overflow
    rest, by = size * scale, divisor * scale
    by_high, by_low = _halves(by, dtype)
    for _ in range(_STEPS):
        quotient = floor(rest / by)
        high, low = _halves(quotient, dtype)
        product = quotient * by
        error = ((high * by_high - product) + high * by_low + low * by_high) + low * by_low
        rest = (rest - product) - error
    rest = where(less(rest, 0.0), rest + by, rest)
    rest = where(less(rest, by), rest, rest - by)
    rest = where(less(size, divisor), size, rest / scale)
    return where(less(x, 0.0), -rest, rest)


def _is_float(x: TensorLike, y: TensorLike) -> bool:
    return bool((x if hasattr(x, "dtype") else y).dtype.kind == "float")


def _quotient_of_fmod(x: TensorLike, y: TensorLike) -> Any:
    """Return the multiple of `y` that `fmod` subtracts: the quotient rounded towards zero, or infinity."""
    infinite = logical_or(equal(y, 0.0), isinf(x))
    return where(infinite, x / y, floor_divide(abs_(x), abs_(y)) * (sign(x) * sign(y)))


fmod = elementwise(
    "fmod",
    np.fmod,
    "Remainder of `x / y` with the sign of `x`, as in C.",
    promotion="numeric",
    decompose=lambda x, y: in_common_dtype(_fmod_decomposed, x, y),
    gradient=(lambda g: g, lambda g, x, y: -g * _quotient_of_fmod(x, y)),
    samples=lambda rng: (
        [
            Sample((rng.uniform(-40, 40, a), rng.choice([-1.0, 1.0], b) * rng.uniform(1.0, 4.0, b)))
            for a, b in [((33,), (33,)), ((4, 1, 5), (3, 1))]
        ]
        + [Sample((rng.uniform(-40, 40, (5,)), 3.0))]
    ),
    tolerance=Tolerance(2.0),
)


def _floor_divide_decomposed(x: TensorLike, y: TensorLike) -> Any:
    if _is_float(x, y):
        # As Python does: from the remainder, so that the two agree where the quotient of x and y is rounded up.
        rest = fmod(x, y)
        quotient = (x - rest) / y
        opposite = logical_and(not_equal(rest, 0.0), not_equal(less(rest, 0.0), less(y, 0.0)))
        quotient = where(opposite, quotient - 1.0, quotient)
        whole = floor(quotient)
        return where(equal(y, 0.0), x / y, where(less(0.5, quotient - whole), whole + 1.0, whole))
    quotient = truncating_divide(x, y)
    inexact = not_equal(quotient * y, x)
    return where(logical_and(inexact, not_equal(less(x, 0), less(y, 0))), quotient - 1, quotient)


def _nonzero_samples(rng: np.random.Generator) -> list[Sample]:
    def divisor(shape: tuple[int, ...]) -> Any:
        return rng.choice([-1.0, 1.0], shape) * rng.uniform(1.0, 4.0, shape)

    return [
        Sample((rng.uniform(-40, 40, a), divisor(b)))
        for a, b in [((), ()), ((33,), (33,)), ((4, 1, 5), (3, 1)), ((0, 3), (1, 3))]
    ] + [Sample((rng.uniform(-40, 40, (5,)), 3.0)), Sample((7.0, divisor((5,))))]


floor_divide = elementwise(
    "floor_divide",
    np.floor_divide,
    "Largest integer not above `x / y`. For floats, the quotient is exact, so that it agrees with `remainder`.",
    promotion="numeric",
    decompose=lambda x, y: in_common_dtype(_floor_divide_decomposed, x, y),
    gradient=(lambda x_spec: zeros(x_spec), lambda y_spec: zeros(y_spec)),
    samples=_nonzero_samples,
)


def _remainder(x: Array, y: Array) -> Any:
    return np.remainder(x, y)


def _remainder_decomposed(x: TensorLike, y: TensorLike) -> Any:
    if not _is_float(x, y):
        return x - floor_divide(x, y) * y
    rest = fmod(x, y)
    moved = where(not_equal(less(rest, 0.0), less(y, 0.0)), rest + y, rest)
    return where(equal(rest, 0.0), where(less(y, 0.0), -0.0, 0.0), moved)


def _whole_quotient(x: TensorLike | float, y: TensorLike) -> Any:
    """How often `y` is subtracted from `x` for the remainder: -1 times where `y` is infinite and of the other sign."""
    opposite = logical_or(logical_and(less(x, 0.0), equal(y, math.inf)), logical_and(less(0.0, x), equal(y, -math.inf)))
    return where(logical_and(opposite, isfinite(x)), -1.0, floor_divide(x, y))


remainder = elementwise(
    "remainder",
    _remainder,
    "Remainder of `x / y` with the sign of `y`, as Python's %.",
    promotion="numeric",
    decompose=lambda x, y: in_common_dtype(_remainder_decomposed, x, y),
    gradient=(lambda g: g, lambda g, x, y: -g * _whole_quotient(x, y)),
    samples=_nonzero_samples,
    tolerance=Tolerance(2.0),
)


floor = elementwise(
    "floor",
    np.floor,
    "Largest integer not above `x`.",
    promotion="numeric",
    gradient=lambda x_spec: zeros(x_spec),
    dtypes=dtypes.FLOATS,
)
ceil = elementwise(
    "ceil",
    np.ceil,
    "Smallest integer not below `x`.",
    promotion="numeric",
    decompose=lambda x: -floor(-x),
    gradient=lambda x_spec: zeros(x_spec),
    dtypes=dtypes.FLOATS,
)
trunc: OpFunction = elementwise(
    "trunc",
    np.trunc,
    "`x` without its fraction.",
    promotion="numeric",
    decompose=lambda x: where(less(x, 0.0), ceil(x), floor(x)),
    gradient=lambda x_spec: zeros(x_spec),
    dtypes=dtypes.FLOATS,
    names=Names("fix"),
)


def _quotient_samples(rng: np.random.Generator) -> list[Sample]:
    """Draw quotients halfway between integers, so that rounding errors do not change the truncated quotient."""
    divisor = rng.choice([-1.0, 1.0], (4, 3)) * rng.uniform(1.0, 4.0, (4, 3))
    dividend = divisor * (rng.integers(-8, 8, (4, 3)) + 0.5)
    special = np.array([1.0, -1.0, 0.0, np.inf, -np.inf, np.nan, 2.5])
    return [Sample((dividend, divisor)), Sample(tuple(v.ravel() for v in np.meshgrid(special, special)), special=True)]


truncated_quotient = elementwise(
    "truncated_quotient",
    lambda x, y: np.trunc(np.divide(x, y)),
    "`x / y` rounded towards zero.",
    promotion="float",
    decompose=lambda x, y: trunc(divide(x, y)),
    gradient=(lambda x_spec: zeros(x_spec), lambda y_spec: zeros(y_spec)),
    samples=_quotient_samples,
    tolerance=Tolerance(0.0),
    public=False,
)


def _round(x: TensorLike) -> Any:
    low = floor(x)
    part = x - low
    even = equal(floor(low * 0.5) * 2.0, low)
    up = logical_or(less(0.5, part), logical_and(equal(part, 0.5), logical_not(even)))
    return where(isfinite(x), where(up, low + 1.0, low), x)


round_ = elementwise(
    "round",
    np.round,
    "Nearest integer, halves to even.",
    promotion="numeric",
    inputs=("x",),
    decompose=_round,
    gradient=lambda x_spec: zeros(x_spec),
    dtypes=dtypes.FLOATS,
)
isnan = elementwise(
    "isnan",
    np.isnan,
    "True where `x` is NaN.",
    result=dtypes.bool_,
    decompose=lambda x: not_equal(x, x),
    dtypes=dtypes.FLOATS,
)
isinf = elementwise(
    "isinf",
    np.isinf,
    "True where `x` is infinite.",
    result=dtypes.bool_,
    decompose=lambda x: equal(abs_(x), math.inf) if x.dtype.kind == "float" else not_equal(x, x),
    dtypes=dtypes.FLOATS,
)
isfinite = elementwise(
    "isfinite",
    np.isfinite,
    "True where `x` is neither infinite nor NaN.",
    result=dtypes.bool_,
    decompose=lambda x: less(abs_(x), math.inf) if x.dtype.kind == "float" else equal(x, x),
    dtypes=dtypes.FLOATS,
    names=Names(aten=".default"),
)
