"""Exponentials, powers, and trigonometric and hyperbolic functions of complex numbers: their principal values."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dispatch import is_complex
from polyhal.hal.ops.complex_numbers.functions import angle
from polyhal.hal.ops.complex_numbers.rules import complex_rule, join
from polyhal.hal.ops.pointwise.activation import sigmoid, silu
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.exponential import exp, exp2, expm1, log, log1p, log2, log10, pow_, rsqrt, sqrt
from polyhal.hal.ops.pointwise.inverse_hyperbolic import acosh, asinh, atanh
from polyhal.hal.ops.pointwise.logic import equal, less, logical_and, logical_not
from polyhal.hal.ops.pointwise.pairs import hypot
from polyhal.hal.ops.pointwise.rounding import isfinite, isinf
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.pointwise.signs import copysign
from polyhal.hal.ops.pointwise.smooth_activation import softsign, tanhshrink
from polyhal.hal.ops.pointwise.trigonometry import acos, asin, atan, atan2, cos, cosh, sin, sinh, tan, tanh


def _times_i(x: Any) -> Any:
    return join(-x.imag, x.real)


def _scaled(size: Any, x: Any) -> Any:
    """Return `size * x`, and `x` where it is 0 and `size` infinite, so that the result of a number on an axis is on an axis."""
    return where(logical_and(equal(x, 0.0), isinf(size)), x, size * x)


@complex_rule(exp)
def _exp(x: Any) -> Any:
    a, b = x.real, x.imag
    size = exp(a)
    b = where(logical_and(equal(a, -math.inf), logical_not(isfinite(b))), 0.0, b)  # 0 times any direction is 0
    return join(_scaled(size, cos(b)), _scaled(size, sin(b)))


@complex_rule(exp2)
def _exp2(x: Any) -> Any:
    return exp(x * math.log(2))


@complex_rule(expm1)
def _expm1(x: Any) -> Any:
    """e^a cos b - 1 is (e^a - 1) cos b - 2 sin(b / 2)^2, which keeps small results exact."""
    small = expm1(x.real) * cos(x.imag) - square(sin(x.imag * 0.5)) * 2.0
    return join(small, exp(x.real) * sin(x.imag))


@complex_rule(log)
def _log(x: Any) -> Any:
    return join(log(abs_(x)), angle(x))


@complex_rule(log2)
def _log2(x: Any) -> Any:
    return log(x) * (1 / math.log(2))


@complex_rule(log10)
def _log10(x: Any) -> Any:
    return log(x) * (1 / math.log(10))


@complex_rule(log1p)
def _log1p(x: Any) -> Any:
    """log |1 + z| is log1p(a * (2 + a) + b^2) / 2, which keeps small results exact; not where that overflows."""
    a, b = x.real, x.imag
    near = less(abs_(x), 1.0)
    inner = where(near, a * (a + 2.0) + square(b), 0.0)
    return join(where(near, log1p(inner) * 0.5, log(hypot(a + 1.0, b))), angle(x + 1.0))


@complex_rule(sqrt)
def _sqrt(x: Any) -> Any:
    """The larger part is sqrt((|z| + |a|) / 2); the other follows from b without cancellation."""
    a, b = x.real, x.imag
    zero = equal(x, 0)
    larger = sqrt(where(zero, 1.0, abs_(x) + abs_(a)) * 0.5)
    smaller = abs_(b) / (larger * 2.0)
    negative = less(a, 0.0)
    re, im = where(negative, smaller, larger), where(negative, larger, smaller)
    return join(where(zero, 0.0, re), where(zero, 0.0, copysign(im, b)))


@complex_rule(rsqrt)
def _rsqrt(x: Any) -> Any:
    return 1.0 / sqrt(x)


@complex_rule(pow_)
def _pow(x: Any, y: Any) -> Any:
    """`exp(y * log(x))`; 0 to any power but 0 is 0."""
    if not hasattr(y, "ref") and not is_complex(y) and y in (0, 1, 2, -1, 0.5):
        return {
            0: lambda: x * 0 + 1,
            1: lambda: x * 1,
            2: lambda: square(x),
            -1: lambda: 1.0 / x,
            0.5: lambda: sqrt(x),
        }[y]()
    x, y = (v if hasattr(v, "ref") else complex(v) for v in (x, y))
    zero = equal(x, 0) if hasattr(x, "ref") else x == 0
    if not hasattr(x, "ref"):
        return exp(y * _log_of_number(x)) if x else where(equal(y, 0), 1.0, join(y.real * 0.0, 0))
    base = x if is_complex(x) else x.cast(dtype=dtypes.to_complex(x.dtype))
    power = exp(log(where(zero, 1.0, base)) * y)
    of_zero = where(equal(y, 0), 1.0, 0.0) if hasattr(y, "ref") else float(y == 0)
    return where(zero, of_zero, power)


def _log_of_number(x: complex) -> complex:
    return complex(math.log(abs(x)), math.atan2(x.imag, x.real))


@complex_rule(sigmoid)
def _sigmoid(x: Any) -> Any:
    return 1.0 / (exp(-x) + 1.0)


@complex_rule(silu)
def _silu(x: Any) -> Any:
    return x * sigmoid(x)


@complex_rule(softsign)
def _softsign(x: Any) -> Any:
    return x / (abs_(x) + 1.0)


@complex_rule(tanhshrink)
def _tanhshrink(x: Any) -> Any:
    return x - tanh(x)


# --- trigonometric and hyperbolic functions -------------------------------------------------------------------------


@complex_rule(sin)
def _sin(x: Any) -> Any:
    a, b = x.real, x.imag
    return join(_scaled(cosh(b), sin(a)), cos(a) * sinh(b))


@complex_rule(cos)
def _cos(x: Any) -> Any:
    a, b = x.real, x.imag
    return join(cos(a) * cosh(b), -_scaled(sinh(b), sin(a)))


@complex_rule(sinh)
def _sinh(x: Any) -> Any:
    a, b = x.real, x.imag
    return join(sinh(a) * cos(b), _scaled(cosh(a), sin(b)))


@complex_rule(cosh)
def _cosh(x: Any) -> Any:
    a, b = x.real, x.imag
    return join(cosh(a) * cos(b), _scaled(sinh(a), sin(b)))


@complex_rule(tanh)
def _tanh(x: Any) -> Any:
    """(t + iu) / (1 + itu) with t = tanh a and u = tan b, times cos(b)^2: nothing overflows."""
    t, c, s = tanh(x.real), cos(x.imag), sin(x.imag)
    size = square(c) + square(t * s)
    return join(t / size, s * c * (1.0 - square(t)) / size)


@complex_rule(tan)
def _tan(x: Any) -> Any:
    y = tanh(_times_i(x))
    return join(y.imag, -y.real)


# Inverse functions after Kahan 1987: products of square roots keep the signs that tell the sides of a branch cut.


@complex_rule(asin)
def _asin(x: Any) -> Any:
    u, v = sqrt(1.0 - x), sqrt(x + 1.0)
    return join(atan2(x.real, u.real * v.real - u.imag * v.imag), asinh(u.real * v.imag - u.imag * v.real))


@complex_rule(acos)
def _acos(x: Any) -> Any:
    u, v = sqrt(1.0 - x), sqrt(x + 1.0)
    return join(atan2(u.real, v.real) * 2.0, asinh(v.real * u.imag - v.imag * u.real))


@complex_rule(acosh)
def _acosh(x: Any) -> Any:
    u, v = sqrt(x - 1.0), sqrt(x + 1.0)
    return join(asinh(u.real * v.real + u.imag * v.imag), atan2(u.imag, v.real) * 2.0)


@complex_rule(atanh)
def _atanh(x: Any) -> Any:
    """log((1 + z) / (1 - z)) / 2: the real part, an odd function of z's, without cancellation near 0 and -1."""
    a, b = x.real, x.imag
    side = where(less(a, 0.0), -1.0, 1.0)
    size = a * side
    re = log1p(size * 4.0 / (square(1.0 - size) + square(b))) * side * 0.25
    return join(re, atan2(b * 2.0, (1.0 - a) * (a + 1.0) - square(b)) * 0.5)


@complex_rule(asinh)
def _asinh(x: Any) -> Any:
    y = asin(_times_i(x))
    return join(y.imag, -y.real)


@complex_rule(atan)
def _atan(x: Any) -> Any:
    y = atanh(_times_i(x))
    return join(y.imag, -y.real)
