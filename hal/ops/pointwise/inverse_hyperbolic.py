"""Inverse hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, Names, Tolerance
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import spread
from polyhal.hal.ops.pointwise.exponential import log, log1p, rsqrt, sqrt
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import minimum, where
from polyhal.hal.ops.tensor_like import TensorLike

_LOG_2 = math.log(2)
_LARGE = 1e9
"""Beyond it the square root adds nothing to `x + sqrt(x * x + 1)` in float64, whose square would overflow float32."""


def _asinh(x: TensorLike) -> Any:
    size = abs_(x)
    inner = minimum(size, _LARGE)
    z = square(inner)
    near = log1p(inner + z / (sqrt(z + 1.0) + 1.0))
    value = where(less(_LARGE, size), log(where(less(_LARGE, size), size, 1.0)) + _LOG_2, near)
    # A comparison does not tell -0 from 0, so that 0 stays as it is.
    return where(less(x, 0.0), -value, where(less(0.0, x), value, x))


def _acosh(x: TensorLike) -> Any:
    t = minimum(x, _LARGE) - 1.0
    return where(less(_LARGE, x), log(x) + _LOG_2, log1p(t + sqrt(t) * sqrt(t + 2.0)))


def _atanh(x: TensorLike) -> Any:
    size = abs_(x)
    value = log1p(size * 2.0 / (1.0 - size)) * 0.5
    return where(less(x, 0.0), -value, where(less(0.0, x), value, x))


asinh = elementwise(
    "asinh",
    np.arcsinh,
    "Inverse hyperbolic sine.",
    promotion="float",
    decompose=_asinh,
    gradient=lambda g, x: g * rsqrt(square(x) + 1.0),
    samples=spread(-6.0, 6.0),
    tolerance=Tolerance(12.0),
    autocast=Autocast.FLOAT32,
    names=Names("arcsinh"),
)
acosh = elementwise(
    "acosh",
    np.arccosh,
    "Inverse hyperbolic cosine; NaN below 1.",
    promotion="float",
    decompose=_acosh,
    gradient=lambda g, x: g * rsqrt(x - 1.0) * rsqrt(x + 1.0),
    samples=spread(1.1, 8.0),
    tolerance=Tolerance(12.0),
    autocast=Autocast.FLOAT32,
    names=Names("arccosh"),
)
atanh = elementwise(
    "atanh",
    np.arctanh,
    "Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond.",
    promotion="float",
    decompose=_atanh,
    gradient=lambda g, x: g / (1.0 - square(x)),
    samples=spread(-0.9, 0.9),
    tolerance=Tolerance(12.0),
    autocast=Autocast.FLOAT32,
    names=Names("arctanh"),
)
