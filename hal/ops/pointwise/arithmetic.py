"""Arithmetic: the four operations, absolute value, sign, square and reciprocal."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, Names, OpFunction, Tolerance, Trait, reads
from polyhal.hal.ops.pointwise.constant import zeros
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import Uniform
from polyhal.hal.ops.pointwise.logic import equal, less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Numeric, TensorLike

add = elementwise("add", np.add, "Sum `x + y`.", gradient=lambda g: (g, g), traits=Trait.CHEAP | Trait.COMMUTATIVE)
subtract = elementwise(
    "subtract",
    np.subtract,
    "Difference `x - y`.",
    promotion="numeric",
    gradient=(lambda g: g, lambda g: -g),
    traits=Trait.CHEAP,
)
multiply = elementwise(
    "multiply",
    np.multiply,
    "Product `x * y`.",
    gradient=(lambda g, y: g * y, lambda g, x: g * x),
    traits=Trait.CHEAP | Trait.COMMUTATIVE,
    names=Names("mul"),
)


@reads(x="y")
def _divide_gradient(g: TensorLike, x: Any, y: Numeric, needs: tuple[bool, ...]) -> Any:
    quotient = g / y
    return quotient, -quotient * (x / y) if needs[1] else None


divide = elementwise(
    "divide",
    np.divide,
    "Quotient `x / y`, floating point also for integers.",
    promotion="float",
    gradient=_divide_gradient,
    samples=Uniform((-4.0, 4.0), (0.5, 4.0)),
    tolerance=Tolerance(2.5),
    traits=Trait.CHEAP,
    names=Names("true_divide", aten="div.Tensor div.Scalar"),
)

negative = elementwise(
    "negative", np.negative, "`-x`.", promotion="numeric", gradient=lambda g: -g, traits=Trait.CHEAP, names=Names("neg")
)
abs_ = elementwise(
    "abs",
    np.abs,
    "Absolute value.",
    promotion="numeric",
    decompose=lambda x: where(less(x, 0), -x, x + 0),
    gradient=lambda g, x: g * sign(x),
    samples=Uniform((0.25, 4.0)),
    traits=Trait.CHEAP,
    names=Names("absolute"),
)
sign: OpFunction = elementwise(
    "sign",
    lambda x: x if np.asarray(x).dtype.kind == "b" else np.sign(x),
    "-1, 0 or 1 by the sign of `x`; NaN stays NaN, and bool stays bool.",
    decompose=lambda x: where(equal(x, x), where(less(0, x), 1, where(less(x, 0), -1, 0)).cast(dtype=x.dtype), x),
    gradient=lambda x_spec: zeros(x_spec),
    names=Names("sgn"),
)
square = elementwise(
    "square",
    np.square,
    "`x * x`.",
    promotion="number",
    decompose=lambda x: x * x,
    gradient=lambda g, x: g * (x * 2),
    traits=Trait.CHEAP,
)
reciprocal = elementwise(
    "reciprocal",
    np.reciprocal,
    "`1 / x`.",
    promotion="float",
    decompose=lambda x: 1 / x,
    gradient=lambda g, out: -g * square(out),
    samples=Uniform((0.25, 4.0)),
    traits=Trait.CHEAP,
    autocast=Autocast.FLOAT32,
)
