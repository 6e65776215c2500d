"""Trigonometric, inverse trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, Names, OpFunction, Tolerance
from polyhal.hal.ops.pointwise import polynomials
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import Uniform
from polyhal.hal.ops.pointwise.exponential import exp, expm1, rsqrt, sqrt
from polyhal.hal.ops.pointwise.logic import equal, less, logical_or, not_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import TensorLike

_UNIT = Tolerance(8.0, floor=1.0)
"""Units at magnitude 1: near a zero of a periodic function, the rounding of the argument dominates."""

sin = elementwise(
    "sin",
    np.sin,
    "Sine of `x` radians.",
    promotion="float",
    gradient=lambda g, x: g * cos(x),
    tolerance=Tolerance(4.0, floor=1.0),
)
cos: OpFunction = elementwise(
    "cos",
    np.cos,
    "Cosine of `x` radians.",
    promotion="float",
    decompose=lambda x: 1.0 - square(sin(x * 0.5)) * 2.0,
    gradient=lambda g, x: -g * sin(x),
    tolerance=_UNIT,
)
tan = elementwise(
    "tan",
    np.tan,
    "Tangent of `x` radians.",
    promotion="float",
    decompose=lambda x: sin(x) / cos(x),
    gradient=lambda g, out: g * (square(out) + 1.0),
    samples=Uniform((-1.3, 1.3)),
    tolerance=Tolerance(32.0, floor=1.0),
    autocast=Autocast.FLOAT32,
)
asin = elementwise(
    "asin",
    np.arcsin,
    "Inverse sine, in radians.",
    promotion="float",
    decompose=lambda x: atan(x * rsqrt((1.0 - x) * (x + 1.0))),
    gradient=lambda g, x: g * rsqrt(1.0 - square(x)),
    samples=Uniform((-0.95, 0.95)),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
    names=Names("arcsin"),
)
acos = elementwise(
    "acos",
    np.arccos,
    "Inverse cosine, in radians.",
    promotion="float",
    decompose=lambda x: atan(sqrt((1.0 - x) / (x + 1.0))) * 2.0,
    gradient=lambda g, x: -g * rsqrt(1.0 - square(x)),
    samples=Uniform((-0.95, 0.95)),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
    names=Names("arccos"),
)
atan: OpFunction = elementwise(
    "atan",
    np.arctan,
    "Inverse tangent, in radians.",
    promotion="float",
    decompose=lambda x: polynomials.atan(x, where, less, abs_),
    gradient=lambda g, x: g / (square(x) + 1.0),
    tolerance=Tolerance(8.0),
    names=Names("arctan"),
)


def _atan2(y: TensorLike, x: TensorLike) -> Any:
    y, x = (v if hasattr(v, "dtype") else other * 0 + v for v, other in ((y, x), (x, y)))
    swap = less(abs_(x), abs_(y))
    small, large = where(swap, abs_(x), abs_(y)), where(swap, abs_(y), abs_(x))
    ratio = where(equal(small, large), where(equal(large, 0.0), 0.0, 1.0), small / large)
    angle = atan(where(logical_or(not_equal(x, x), not_equal(y, y)), math.nan, ratio))
    angle = where(swap, math.pi / 2 - angle, angle)
    # 1/x distinguishes -0 from 0, which a comparison does not.
    angle = where(logical_or(less(x, 0.0), less(1.0 / x, 0.0)), math.pi - angle, angle)
    return where(logical_or(less(y, 0.0), less(1.0 / y, 0.0)), -angle, angle)


def _atan2_gradient(g: TensorLike, y: TensorLike, x: TensorLike | float) -> Any:
    """At the origin, where there is no derivative, the gradients are 0."""
    squared = square(x) + square(y)
    scaled = g / where(equal(squared, 0.0), 1.0, squared)
    return scaled * x, -(scaled * y)


atan2 = elementwise(
    "atan2",
    np.arctan2,
    "Angle of the point (y, x), in radians.",
    promotion="float",
    inputs=("y", "x"),
    decompose=_atan2,
    gradient=_atan2_gradient,
    samples=Uniform((0.3, 4.0), (-4.0, 4.0)),
    tolerance=Tolerance(8.0, floor=1.0),
    names=Names("arctan2"),
)


def _sinh(x: TensorLike) -> Any:
    e = expm1(abs_(x))
    # Beyond 20 the second term rounds away; e / (e + 1) would end as inf / inf.
    half = where(less(20.0, abs_(x)), e, e + e / (e + 1.0)) * 0.5
    return where(less(x, 0.0), -half, where(less(0.0, x), half, x))  # -0 stays -0


sinh = elementwise(
    "sinh",
    np.sinh,
    "Hyperbolic sine.",
    promotion="float",
    decompose=_sinh,
    gradient=lambda g, x: g * cosh(x),
    tolerance=Tolerance(12.0),
    autocast=Autocast.FLOAT32,
)
cosh: OpFunction = elementwise(
    "cosh",
    np.cosh,
    "Hyperbolic cosine.",
    promotion="float",
    decompose=lambda x: (exp(x) + exp(-x)) * 0.5,
    gradient=lambda g, x: g * sinh(x),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
)


def _tanh(x: TensorLike) -> Any:
    e = expm1(abs_(x) * -2.0)
    half = -e / (e + 2.0)
    return where(less(x, 0.0), -half, where(less(0.0, x), half, x))  # -0 stays -0


tanh_grad = elementwise(
    "tanh_grad",
    lambda grad, y: grad * (1 - y * y),
    "Gradient of tanh from its result.",
    promotion="float",
    decompose=lambda g, out: g * (1.0 - square(out)),
    samples=Uniform((-2.0, 2.0), (-0.95, 0.95), special=False),
    tolerance=Tolerance(4.0, floor=2.0),
    names=Names(aten="tanh_backward"),
)
tanh = elementwise(
    "tanh",
    np.tanh,
    "Hyperbolic tangent.",
    promotion="float",
    decompose=_tanh,
    gradient=lambda g, out: tanh_grad(g, out),
    tolerance=Tolerance(12.0),
)
