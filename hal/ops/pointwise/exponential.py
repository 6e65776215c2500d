"""Exponentials, logarithms, roots and powers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Autocast, Names, Sample, Tolerance, Trait
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import Uniform
from polyhal.hal.ops.pointwise.logic import (
    bitwise_and,
    bitwise_right_shift,
    equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
)
from polyhal.hal.ops.pointwise.promotion import in_common_dtype
from polyhal.hal.ops.pointwise.rounding import floor
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, Numeric, TensorLike

exp = elementwise(
    "exp", np.exp, "e to the power `x`.", promotion="float", gradient=lambda g, out: g * out, autocast=Autocast.FLOAT32
)
exp2 = elementwise(
    "exp2",
    np.exp2,
    "2 to the power `x`.",
    promotion="float",
    decompose=lambda x: exp(x * math.log(2)),
    gradient=lambda g, out: g * (out * math.log(2)),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)


def _expm1(x: TensorLike) -> Any:
    u = exp(x)
    exact = equal(u, 1.0)
    # Kahan: (u - 1) x / log u cancels the rounding error of u = exp(x).
    corrected = (u - 1.0) * (x / where(exact, 1.0, log(u)))
    far = logical_or(less(x, -20.0), less(20.0, x))
    return where(far, u - 1.0, where(exact, x, corrected))


expm1 = elementwise(
    "expm1",
    np.expm1,
    "`exp(x) - 1`, accurate near 0.",
    promotion="float",
    decompose=_expm1,
    gradient=lambda g, out: g * (out + 1.0),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)
log = elementwise(
    "log",
    np.log,
    "Natural logarithm.",
    promotion="float",
    gradient=lambda g, x: g / x,
    samples=Uniform((0.05, 8.0)),
    autocast=Autocast.FLOAT32,
)
log2 = elementwise(
    "log2",
    np.log2,
    "Logarithm to base 2.",
    promotion="float",
    decompose=lambda x: log(x) * (1 / math.log(2)),
    gradient=lambda g, x: g / (x * math.log(2)),
    samples=Uniform((0.05, 8.0)),
    autocast=Autocast.FLOAT32,
)
log10 = elementwise(
    "log10",
    np.log10,
    "Logarithm to base 10.",
    promotion="float",
    decompose=lambda x: log(x) * (1 / math.log(10)),
    gradient=lambda g, x: g / (x * math.log(10)),
    samples=Uniform((0.05, 8.0)),
    autocast=Autocast.FLOAT32,
)


def _log1p(x: TensorLike) -> Any:
    u = x + 1.0
    exact = equal(u, 1.0)
    corrected = log(u) * (x / where(exact, 1.0, u - 1.0))
    return where(exact, x, where(equal(u, math.inf), u, corrected))


log1p = elementwise(
    "log1p",
    np.log1p,
    "`log(1 + x)`, accurate near 0.",
    promotion="float",
    decompose=_log1p,
    gradient=lambda g, x: g / (x + 1.0),
    samples=Uniform((-0.9, 8.0)),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)
sqrt = elementwise(
    "sqrt",
    np.sqrt,
    "Square root.",
    promotion="float",
    gradient=lambda g, out: g * 0.5 / out,
    samples=Uniform((0.05, 8.0)),
    traits=Trait.CHEAP,
)
rsqrt = elementwise(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    "`1 / sqrt(x)`.",
    promotion="float",
    decompose=lambda x: 1.0 / sqrt(x),
    gradient=lambda g, out: g * (out * square(out)) * -0.5,
    samples=Uniform((0.05, 8.0)),
    traits=Trait.CHEAP,
    autocast=Autocast.FLOAT32,
)


def _pow(x: Array | float, y: Array | float) -> Any:
    kind = np.result_type(x, y).kind
    if kind not in "iu":
        return np.power(x, y)
    y = np.asarray(y)
    power = np.power(x, np.where(y < 0, 0, y).astype(y.dtype))
    if kind == "u":
        return power
    odd = (y & 1) != 0
    return np.where(y < 0, np.where(np.equal(x, 1), 1, np.where(np.equal(x, -1), np.where(odd, -1, 1), 0)), power)


def _pow_decomposed(x: Any, y: Any) -> Any:
    kind = next(v.dtype.kind for v in (x, y) if hasattr(v, "dtype"))
    if kind != "float":
        return _integer_pow(x, y)
    size = exp(y * log(abs_(x) if hasattr(x, "dtype") else math.fabs(x))) if not _is_zero(x) else exp(y * -math.inf)
    if not hasattr(x, "dtype"):
        x = y * 0 + x
    if not hasattr(y, "dtype"):
        y = x * 0 + y
    whole = equal(floor(y), y)
    odd = logical_and(whole, not_equal(floor(y * 0.5) * 2.0, y))
    signed = where(less(x, 0.0), where(whole, where(odd, -size, size), math.nan), size)
    return where(logical_or(equal(y, 0.0), equal(x, 1.0)), 1.0, signed)


def _is_zero(x: Numeric) -> bool:
    return not hasattr(x, "dtype") and x == 0


def _integer_pow(x: Numeric, y: Numeric) -> Any:
    """Square and multiply over the bits of the exponent.

    The reciprocal of a power is truncated, so that a negative exponent gives 0, except for the bases 1 and -1.
    """
    base = x if hasattr(x, "dtype") else y * 0 + x
    exponent = y if hasattr(y, "dtype") else x * 0 + y
    result = exponent * 0 + 1
    negative_exponent = less(exponent, 0)
    odd = not_equal(bitwise_and(exponent, 1), 0)
    unit = logical_or(equal(base, 1), equal(base, -1))
    reciprocal = where(unit, where(odd, base, base * base), 0)
    for _ in range(exponent.dtype.bits):
        result = where(not_equal(bitwise_and(exponent, 1), 0), result * base, result)
        base = base * base
        exponent = bitwise_right_shift(exponent, 1)
    return where(negative_exponent, reciprocal, result)


def _pow_gradient_of_exponent(g: TensorLike, x: TensorLike | float, y: TensorLike, out: TensorLike) -> Any:
    """x^y log x; at x = 0 that is 0 for y >= 0, where the log would give NaN."""
    flat = logical_and(equal(x, 0.0), less_equal(0.0, y))
    return g * where(flat, 0.0, out * log(where(flat, 1.0, x)))


def _pow_gradient_of_base(g: TensorLike, x: TensorLike, y: TensorLike | float) -> Any:
    """y x^(y - 1); for y = 0 that is 0 also at x = 0, where the power is infinite."""
    if type(y) in (int, float):
        return g * (y * pow_(x, y - 1)) if y else where(False, g, 0.0)
    constant = equal(y, 0.0)
    return where(constant, 0.0, g * (y * pow_(x, where(constant, 1.0, y - 1))))


def _pow_samples(rng: np.random.Generator) -> list[Sample]:
    pairs = [((), ()), ((33,), (33,)), ((4, 1, 5), (3, 1)), ((0, 3), (1, 3))]
    out = [Sample((rng.uniform(0.25, 3, a), rng.uniform(-2, 3, b))) for a, b in pairs]
    grid = np.array([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan])
    a, b = np.meshgrid(grid, np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]))
    return [
        *out,
        Sample((rng.uniform(0.25, 3, (5,)), 2.0)),
        Sample((2.0, rng.uniform(-2, 3, (5,)))),
        Sample((a.reshape(-1), b.reshape(-1)), special=True),
    ]


pow_ = elementwise(
    "pow",
    _pow,
    "`x` to the power `y`.",
    promotion="numeric",
    decompose=lambda x, y: in_common_dtype(_pow_decomposed, x, y),
    gradient=(_pow_gradient_of_base, _pow_gradient_of_exponent),
    samples=_pow_samples,
    # exp(y log x) has a relative error of |y log x| units, below 5 on the samples.
    tolerance=Tolerance(16.0),
    traits=Trait.STORES_NUMBERS,
    dtypes=dtypes.FLOATS,
    autocast=Autocast.FLOAT32,
    names=Names("numpy.power"),
)
