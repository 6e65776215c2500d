"""Activation functions with their gradients, and erf, which gelu needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Autocast, Names, OpFunction, Sample, Tolerance, flat_in
from polyhal.hal.ops.fusion import Pattern
from polyhal.hal.ops.pointwise import polynomials
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import SPECIAL, Uniform
from polyhal.hal.ops.pointwise.exponential import exp, expm1, log1p
from polyhal.hal.ops.pointwise.logic import less, less_equal
from polyhal.hal.ops.pointwise.selection import maximum, minimum, where
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _away_from_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Values of both signs with magnitude 0.1 to 4: finite differences must not cross the kink at 0."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.1, 4.0, shape)


def _kinked_samples(rng: np.random.Generator) -> list[Sample]:
    shapes: list[tuple[int, ...]] = [(), (0,), (33,), (3, 1, 5)]
    return [Sample((_away_from_zero(rng, s),)) for s in shapes] + [Sample((SPECIAL,), special=True)]


relu_grad: OpFunction = elementwise(
    "relu_grad",
    lambda grad, y: np.where(y <= 0, 0, grad),
    "Gradient of relu from its result: `grad`, and 0 where the result is 0.",
    decompose=lambda g, out: where(less_equal(out, 0), 0, g),
    gradient=(lambda g, y: relu_grad(g, y), None),
    samples=Uniform(special=False),
    promotion="numeric",
    dtypes=dtypes.FLOATS,
)
relu = elementwise(
    "relu",
    lambda x: np.maximum(x, np.zeros_like(x)),
    "`max(x, 0)`.",
    promotion="numeric",
    decompose=lambda x: maximum(x, 0),
    gradient=flat_in("x")(lambda g, out: relu_grad(g, out)),
    samples=_kinked_samples,
)


def below_zero(x: TensorLike) -> Any:
    """Return `min(x, 0)` for gradients: its derivative at 0 is 0, where `minimum` has a half."""
    return where(less_equal(0.0, x), 0.0, x)


leaky_relu = elementwise(
    "leaky_relu",
    lambda x, *, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
    "`x` if positive, else `negative_slope * x`.",
    promotion="float",
    decompose=lambda x, *, negative_slope: where(less(0.0, x), x, x * negative_slope),
    gradient=flat_in("x")(lambda g, x, *, negative_slope: where(less(0.0, x), g, g * negative_slope)),
    samples=_kinked_samples,
    names=Names(aten=".default"),
)
elu = elementwise(
    "elu",
    lambda x, *, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "`x` if positive, else `alpha * (exp(x) - 1)`.",
    promotion="float",
    decompose=lambda x, *, alpha: where(less(0.0, x), x, expm1(minimum(x, 0.0)) * alpha),
    gradient=lambda g, x, *, alpha: where(less(0.0, x), g, g * exp(below_zero(x)) * alpha),
    samples=_kinked_samples,
    tolerance=Tolerance(8.0),
)


def _np_sigmoid(x: Array) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), np.where(np.isnan(x), x, e / (1 + e)))


sigmoid_grad = elementwise(
    "sigmoid_grad",
    lambda grad, y: grad * y * (1 - y),
    "Gradient of sigmoid from its result.",
    promotion="float",
    decompose=lambda g, out: g * (out * (1.0 - out)),
    samples=Uniform((-2.0, 2.0), (0.05, 0.95), special=False),
    names=Names(aten="sigmoid_backward"),
)
sigmoid = elementwise(
    "sigmoid",
    _np_sigmoid,
    "Logistic function `1 / (1 + exp(-x))`.",
    promotion="float",
    decompose=lambda x: 1.0 / (exp(-x) + 1.0),
    gradient=lambda g, out: sigmoid_grad(g, out),
    tolerance=Tolerance(8.0),
    names=Names("special.expit"),
)
silu_grad = elementwise(
    "silu_grad",
    lambda grad, x: grad * _np_sigmoid(x) * (1 + x * (1 - _np_sigmoid(x))),
    "Gradient of silu.",
    promotion="float",
    decompose=lambda g, x: g * (sigmoid(x) * (x * (1.0 - sigmoid(x)) + 1.0)),
    samples=Uniform(special=False),
    tolerance=Tolerance(12.0, floor=1.0),
    names=Names(aten="silu_backward"),
)
silu = elementwise(
    "silu",
    lambda x: x * _np_sigmoid(x),
    "`x * sigmoid(x)`, also called swish.",
    promotion="float",
    decompose=lambda x: x * sigmoid(x),
    gradient=lambda g, x: silu_grad(g, x),
    samples=Uniform(special=False),
    tolerance=Tolerance(8.0),
)


def _np_softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


softplus = elementwise(
    "softplus",
    _np_softplus,
    "`log(1 + exp(x))` without overflow.",
    promotion="float",
    decompose=lambda x: maximum(x, 0.0) + log1p(exp(-abs_(x))),
    gradient=lambda g, x: g * sigmoid(x),
    samples=Uniform(special=False),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
)

_np_erf = np.vectorize(math.erf, otypes=[np.float64])
"""erf of the C library; NumPy has none."""


def _reference_erf(x: Array) -> Any:
    return _np_erf(np.asarray(x, np.float64))


erf = elementwise(
    "erf",
    _reference_erf,
    "Error function.",
    promotion="float",
    decompose=lambda x: polynomials.erf(x, where, less, exp, abs_),
    gradient=lambda g, x: g * (exp(-square(x)) * (2 / math.sqrt(math.pi))),
    tolerance=Tolerance(12.0),
    names=Names("special."),
)

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _np_gelu(x: Array, *, approximate: str = "none") -> Any:
    x = np.asarray(x)
    wide = x.astype(np.float64)
    if approximate == "tanh":
        return 0.5 * wide * (1 + np.tanh(_SQRT_2_OVER_PI * (wide + _CUBIC * wide**3)))
    return 0.5 * wide * (1 + _np_erf(wide / math.sqrt(2)))


def _gelu(x: TensorLike, *, approximate: str) -> Any:
    if approximate == "tanh":
        return x * sigmoid((x + square(x) * x * _CUBIC) * (2 * _SQRT_2_OVER_PI))
    return x * ((erf(x * math.sqrt(0.5)) + 1.0) * 0.5)


def _gelu_by_tanh(x: TensorLike, *, approximate: str) -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x * x * x)))
    return None


def _gelu_by_tanh_factored(x: TensorLike, *, approximate: str) -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + tanh(_SQRT_2_OVER_PI * x * (1 + _CUBIC * x * x)))
    return None


def _np_gelu_grad(grad: Array, x: Array, *, approximate: str = "none") -> Any:
    x = np.asarray(x, np.float64)
    if approximate == "tanh":
        size = np.minimum(x * x, 1024.0)
        t = np.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * size * x))
        derivative = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _SQRT_2_OVER_PI * (1 + 3 * _CUBIC * size)
    else:
        derivative = 0.5 * (1 + _np_erf(x / math.sqrt(2))) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * derivative


def _gelu_grad(g: TensorLike, x: TensorLike, *, approximate: str) -> Any:
    if approximate == "tanh":
        # As in `_gelu`, so that captured steps compute it once.
        s = sigmoid((x + square(x) * x * _CUBIC) * (2 * _SQRT_2_OVER_PI))
        # Beyond 32 the derivative is 0 or 1, and the slope of the argument must not overflow.
        inner = (minimum(square(x), 1024.0) * (3 * _CUBIC) + 1.0) * (2 * _SQRT_2_OVER_PI)
        return g * (s + x * s * (1.0 - s) * inner)
    density = exp(square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))
    return g * ((erf(x * math.sqrt(0.5)) + 1.0) * 0.5 + x * density)


def _gelu_samples(rng: np.random.Generator) -> list[Sample]:
    shapes: list[tuple[int, ...]] = [(), (0,), (33,), (3, 1, 5)]
    return [Sample((rng.uniform(-4, 4, s),), {"approximate": a}) for s in shapes for a in ("none", "tanh")]


def _gelu_grad_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((rng.uniform(-2, 2, (33,)), rng.uniform(-4, 4, (33,))), {"approximate": a}) for a in ("none", "tanh")
    ]


gelu_grad = elementwise(
    "gelu_grad",
    _np_gelu_grad,
    "Gradient of gelu.",
    promotion="float",
    decompose=_gelu_grad,
    samples=_gelu_grad_samples,
    tolerance=Tolerance(8.0, floor=2.0),
    names=Names(aten="gelu_backward"),
)
gelu = elementwise(
    "gelu",
    _np_gelu,
    "Gaussian error linear unit, exact or by tanh (`approximate`). Source: Hendrycks and Gimpel, arXiv:1606.08415.",
    promotion="float",
    decompose=_gelu,
    samples=_gelu_samples,
    gradient=lambda g, x, *, approximate: gelu_grad(g, x, approximate),
    spellings=[_gelu_by_tanh, _gelu_by_tanh_factored],
    fuses=Pattern(lambda x: [((x,), {"approximate": a}) for a in ("none", "tanh")]),
    # 1 + erf cancels for negative x: the absolute error is that of numbers near 1, times |x| / 2.
    tolerance=Tolerance(8.0, floor=2.0),
    flops_per_element=12,
    names=Names(aten=".default"),
)
