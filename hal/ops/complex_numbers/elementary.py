"""Exponentials, powers, and trigonometric and hyperbolic functions of complex numbers: their principal values."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.ops.complex_numbers.functions import angle
from polyhal.hal.ops.complex_numbers.rules import complex_rule, join, real
from polyhal.hal.ops.pointwise.activation import sigmoid, silu
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.exponential import exp, exp2, expm1, log, log1p, log2, log10, pow_, rsqrt, sqrt
from polyhal.hal.ops.pointwise.inverse_hyperbolic import acosh, asinh, atanh
from polyhal.hal.ops.pointwise.logic import equal, less, logical_and, logical_not, logical_or
from polyhal.hal.ops.pointwise.pairs import hypot
from polyhal.hal.ops.pointwise.rounding import isfinite, isinf, isnan
from polyhal.hal.ops.pointwise.selection import constant_in, where
from polyhal.hal.ops.pointwise.signs import copysign
from polyhal.hal.ops.pointwise.smooth_activation import softsign, tanhshrink
from polyhal.hal.ops.pointwise.trigonometry import acos, asin, atan, atan2, cos, cosh, sin, sinh, tan, tanh
from polyhal.hal.ops.tensor_like import TensorLike


def _times_i(x: TensorLike) -> Any:
    return join(-x.imag, x.real)


def _over_i(x: TensorLike) -> Any:
    return join(x.imag, -x.real)


def _size(x: TensorLike, wave: TensorLike) -> Any:
    """Return `x`, but its sign where it is not finite and its factor `wave` is 0: results of numbers on an axis are on one."""
    return where(logical_and(equal(wave, 0.0), logical_not(isfinite(x))), copysign(1.0, x.detach()), x)


def _product(x: TensorLike, y: TensorLike) -> Any:
    """Return `x * y`, and 0 where a factor is 0, whatever the other one is."""
    return _size(x, y) * _size(y, x)


def _cosine(angle: TensorLike, x: TensorLike) -> Any:
    """Return `cos(angle)`, and 1 where neither `angle` nor `x` is finite: an infinite real part (C99)."""
    return where(logical_or(isfinite(angle), isfinite(x)), cos(angle), 1.0)


@complex_rule(exp)
def _exp(x: TensorLike) -> Any:
    a, b = x.real, x.imag
    size = exp(a)
    sine = where(logical_and(equal(a, -math.inf), logical_not(isfinite(b))), 0.0, sin(b))  # 0 times any direction is 0
    return join(size * _cosine(b, a), _size(size, sine) * sine)


@complex_rule(exp2)
def _exp2(x: TensorLike) -> Any:
    return exp(x * math.log(2))


@complex_rule(expm1)
def _expm1(x: TensorLike) -> Any:
    """e^a cos b - 1 is (e^a - 1) cos b - 2 sin(b / 2)^2, which keeps small results exact."""
    direct = exp(x)
    small = expm1(x.real) * cos(x.imag) - square(sin(x.imag * 0.5)) * 2.0
    return join(where(isfinite(x), small, direct.real - 1.0), direct.imag)


@complex_rule(log)
def _log(x: TensorLike) -> Any:
    return join(log(abs_(x)), angle(x))


@complex_rule(log2)
def _log2(x: TensorLike) -> Any:
    return log(x) * (1 / math.log(2))


@complex_rule(log10)
def _log10(x: TensorLike) -> Any:
    return log(x) * (1 / math.log(10))


@complex_rule(log1p)
def _log1p(x: TensorLike) -> Any:
    """log |1 + z| is log1p(a * (2 + a) + b^2) / 2, which keeps small results exact; not where that overflows."""
    a, b = x.real, x.imag
    near = less(abs_(x), 1.0)
    inner = where(near, a * (a + 2.0) + square(b), 0.0)
    return join(where(near, log1p(inner) * 0.5, log(hypot(a + 1.0, b))), angle(x + 1.0))


@complex_rule(sqrt)
def _sqrt(x: TensorLike) -> Any:
    """Compute the larger part as sqrt((|z| + |a|) / 2), the other from b without cancellation. Both are infinite if b is.

    Signs are constant factors, so that the parts have a gradient on the axes, too.
    """
    a, b = x.real, x.imag
    negative, side = less(a, 0.0), copysign(1.0, b.detach())
    half = abs_(x) * 0.5 + a * where(negative, -0.5, 0.5)
    zero = equal(half, 0.0)
    larger = sqrt(where(zero, 1.0, half))
    smaller = where(logical_or(zero, isinf(b)), b.detach(), b / (larger * 2.0))
    larger = where(zero, 0.0, where(isinf(b), math.inf, larger))
    return join(where(negative, smaller * side, larger), where(negative, larger * side, smaller))


@complex_rule(rsqrt)
def _rsqrt(x: TensorLike) -> Any:
    return 1.0 / sqrt(x)


@complex_rule(pow_)
def _pow(x: TensorLike, y: int) -> Any:
    """Return `exp(y * log(x))`; 1 for an exponent of 0, and 0 where 0 has an exponent with a positive real part."""
    if not hasattr(y, "ref"):
        return _SIMPLE_POWERS[y](x) if y in _SIMPLE_POWERS else _power(x, y)
    return where(equal(y, 0), 1.0, _power(x, y))


def _power(x: Any, y: Any) -> Any:
    """Return `exp(y * log(x))` with C99's product, but 0 and without a gradient where it vanishes because `x` is 0."""
    base = x.cast(dtype=dtypes.to_complex(x.dtype)) if hasattr(x, "ref") and not is_complex(x) else x
    positive = less(0.0, real(y)) if hasattr(y, "ref") else real(y) > 0
    if not hasattr(x, "ref"):
        if x:
            return exp(_product_of_infinities(_like(y, _log_of_number(x)), y))
        return where(positive, 0.0, exp(where(positive, 1.0, y) * complex(-math.inf, 0.0)))
    if positive is False:
        return exp(_product_of_infinities(log(base), y))
    zero = equal(x, 0) if positive is True else logical_and(equal(x, 0), positive)
    return where(zero, 0.0, exp(_product_of_infinities(log(where(zero, 1.0, base)), y)))


def _product_of_infinities(x: TensorLike, y: Any) -> Any:
    """Return `x * y`; infinite where a factor is, even if it has a NaN part (C99, Annex G). `y` may be a number."""
    product = x * y
    if not hasattr(y, "ref"):
        if cmath.isfinite(y):  # the logarithm of a number times a finite one
            return product
        y = _like(x, y)
    elif not is_complex(y):
        y = y.cast(dtype=dtypes.to_complex(y.dtype))
    lost = logical_and(isnan(product.real), isnan(product.imag))
    infinite = logical_and(lost, logical_or(isinf(x), isinf(y)))
    way = _direction(x) * _direction(y)
    return where(infinite, join(way.real * math.inf, way.imag * math.inf), product)


def _direction(x: Any) -> Any:
    """Return 1 for infinite and 0 for finite parts of infinite numbers, with their signs; in others, 0 for NaN."""
    infinite = isinf(x)

    def part(value: TensorLike) -> Any:
        value = value.detach()
        size = where(infinite, isinf(value), where(isnan(value), 0.0, abs_(value)))
        return copysign(size, value)

    return join(part(x.real), part(x.imag))


def _like(x: Any, number: complex) -> Any:
    """Return a number as a tensor like `x`."""
    number = complex(number)
    return join(constant_in(real(x), number.real), constant_in(real(x), number.imag))


_SIMPLE_POWERS: dict[complex, Callable[[Any], Any]] = {
    0: lambda x: join(constant_in(x.real, 1.0), constant_in(x.imag, 0.0)),
    1: lambda x: x * 1,
    2: square,
    -1: lambda x: 1.0 / x,
    0.5: sqrt,
}


def _log_of_number(x: complex) -> complex:
    return complex(math.log(abs(x)), math.atan2(x.imag, x.real))


@complex_rule(sigmoid)
def _sigmoid(x: TensorLike) -> Any:
    return 1.0 / (exp(-x) + 1.0)


@complex_rule(silu)
def _silu(x: TensorLike) -> Any:
    return x * sigmoid(x)


@complex_rule(softsign)
def _softsign(x: TensorLike) -> Any:
    return x / (abs_(x) + 1.0)


@complex_rule(tanhshrink)
def _tanhshrink(x: TensorLike) -> Any:
    return x - tanh(x)


# --- trigonometric and hyperbolic functions -------------------------------------------------------------------------


@complex_rule(sinh)
def _sinh(x: TensorLike) -> Any:
    a, b = x.real, x.imag
    return join(_product(sinh(a), _cosine(b, a)), _product(cosh(a), sin(b)))


@complex_rule(cosh)
def _cosh(x: TensorLike) -> Any:
    a, b = x.real, x.imag
    return join(cosh(a) * _cosine(b, a), _product(sinh(a), sin(b)))


@complex_rule(tanh)
def _tanh(x: TensorLike) -> Any:
    """(t + iu) / (1 + itu) with t = tanh a and u = tan b, times cos(b)^2: nothing overflows."""
    a, b = x.real, x.imag
    b = where(logical_and(isinf(a), logical_not(isfinite(b))), 0.0, b)  # the limits are 1 and -1 in every direction
    t, c, s = tanh(a), cos(b), sin(b)
    size = square(c) + square(t * s)
    return join(_product(t, 1.0 / size), _product(s, c * (1.0 - square(t)) / size))


@complex_rule(sin)
def _sin(x: TensorLike) -> Any:
    return _over_i(sinh(_times_i(x)))


@complex_rule(cos)
def _cos(x: TensorLike) -> Any:
    return cosh(_times_i(x))


@complex_rule(tan)
def _tan(x: TensorLike) -> Any:
    return _over_i(tanh(_times_i(x)))


# Inverse functions after Kahan 1987: products of square roots keep the signs that tell the sides of a branch cut.


def _where_infinite(x: TensorLike, special: Any, re: TensorLike, im: TensorLike) -> Any:
    """Join `re` and `im`, but both parts of `special(a, b)` where a part a or b of `x` is infinite."""
    infinite = isinf(x)
    limits = special(x.real.detach(), x.imag.detach())
    return join(*(where(infinite, limit, part) for limit, part in zip(limits, (re, im), strict=True)))


def _on_axis(x: TensorLike, value: TensorLike | float, part: TensorLike) -> Any:
    """Return `part`, but `value` where the real part of `x` is 0 and the imaginary part NaN: on the imaginary axis."""
    return where(logical_and(equal(x.real, 0.0), isnan(x.imag)), value, part)


@complex_rule(asin)
def _asin(x: TensorLike) -> Any:
    u, v = sqrt(1.0 - x), sqrt(x + 1.0)
    re = _on_axis(x, x.real, atan2(x.real, u.real * v.real - u.imag * v.imag))
    im = asinh(u.real * v.imag - u.imag * v.real)
    return _where_infinite(x, lambda a, b: (atan2(a, abs_(b)), copysign(math.inf, b)), re, im)


@complex_rule(acos)
def _acos(x: TensorLike) -> Any:
    u, v = sqrt(1.0 - x), sqrt(x + 1.0)
    re = _on_axis(x, math.pi / 2, atan2(u.real, v.real) * 2.0)
    im = asinh(v.real * u.imag - v.imag * u.real)
    return _where_infinite(x, lambda a, b: (atan2(abs_(b), a), copysign(math.inf, -b)), re, im)


@complex_rule(acosh)
def _acosh(x: TensorLike) -> Any:
    u, v = sqrt(x - 1.0), sqrt(x + 1.0)
    re = asinh(u.real * v.real + u.imag * v.imag)
    im = _on_axis(x, math.pi / 2, atan2(u.imag, v.real) * 2.0)
    return _where_infinite(x, lambda a, b: (math.inf, atan2(b, a)), re, im)


@complex_rule(atanh)
def _atanh(x: TensorLike) -> Any:
    """log((1 + z) / (1 - z)) / 2: the real part, an odd function of z's, without cancellation near 0 and -1."""
    a, b = x.real, x.imag
    side = where(less(a, 0.0), -1.0, 1.0)
    size = a * side
    re = _on_axis(x, a, log1p(size * 4.0 / (square(1.0 - size) + square(b))) * side * 0.25)
    im = atan2(b * 2.0, (1.0 - a) * (a + 1.0) - square(b)) * 0.5
    return _where_infinite(x, lambda a, b: (copysign(0.0, a), where(isnan(b), b, copysign(math.pi / 2, b))), re, im)


@complex_rule(asinh)
def _asinh(x: TensorLike) -> Any:
    return _over_i(asin(_times_i(x)))


@complex_rule(atan)
def _atan(x: TensorLike) -> Any:
    return _over_i(atanh(_times_i(x)))
