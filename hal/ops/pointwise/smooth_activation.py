"""Smooth activation functions in addition to `activation`, with PyTorch's names and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, Tolerance
from polyhal.hal.ops.pointwise.activation import below_zero, sigmoid, softplus
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import Uniform, spread
from polyhal.hal.ops.pointwise.exponential import exp, expm1, log1p
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import minimum, where
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.tensor_like import Array, TensorLike

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

celu = elementwise(
    "celu",
    lambda x, *, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)),
    "`x` if positive, else `alpha * (exp(x / alpha) - 1)`. Source: Barron, arXiv:1704.07483.",
    promotion="float",
    decompose=lambda x, *, alpha: where(less(0.0, x), x, expm1(minimum(x, 0.0) / alpha) * alpha),
    gradient=lambda g, x, *, alpha: where(less(0.0, x), g, g * exp(below_zero(x) / alpha)),
    samples=spread(-4.0, 4.0, 0.0, params=({}, {"alpha": 2.5})),
    tolerance=Tolerance(12.0),
)
selu = elementwise(
    "selu",
    lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0))),
    "Scaled exponential linear unit, whose constants keep mean 0 and variance 1. Source: Klambauer et al., arXiv:1706.02515.",
    promotion="float",
    decompose=lambda x: where(less(0.0, x), x, expm1(minimum(x, 0.0)) * _SELU_ALPHA) * _SELU_SCALE,
    gradient=lambda g, x: g * where(less(0.0, x), _SELU_SCALE, exp(below_zero(x)) * (_SELU_ALPHA * _SELU_SCALE)),
    samples=spread(-4.0, 4.0, 0.0),
    tolerance=Tolerance(10.0),
)


def _np_softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _mish_gradient(g: TensorLike, x: TensorLike) -> Any:
    """Compute the derivative of tanh by an exponential, because large x magnify the rounding error of `1 - tanh(s)**2`."""
    s = softplus(x)
    decay = exp(s * -2.0)
    return g * (tanh(s) + x * (decay * 4.0 / square(decay + 1.0)) * sigmoid(x))


mish = elementwise(
    "mish",
    lambda x: x * np.tanh(_np_softplus(x)),
    "`x * tanh(softplus(x))`. Source: Misra, arXiv:1908.08681.",
    promotion="float",
    decompose=lambda x: x * tanh(softplus(x)),
    gradient=_mish_gradient,
    samples=Uniform(special=False),
    # softplus and tanh are each within 8 and 12 units, and tanh passes a relative error on undiminished.
    tolerance=Tolerance(24.0),
)
softsign = elementwise(
    "softsign",
    lambda x: x / (1 + np.abs(x)),
    "`x / (1 + |x|)`.",
    promotion="float",
    decompose=lambda x: x / (abs_(x) + 1.0),
    gradient=lambda g, x: g / square(abs_(x) + 1.0),
    samples=Uniform(special=False),
    tolerance=Tolerance(4.0),
)
tanhshrink = elementwise(
    "tanhshrink",
    lambda x: x - np.tanh(x),
    "`x - tanh(x)`.",
    promotion="float",
    decompose=lambda x: x - tanh(x),
    gradient=lambda g, x: g * square(tanh(x)),
    # Near 0 the difference cancels.
    tolerance=Tolerance(13.0, floor=1.0),
)
logsigmoid = elementwise(
    "logsigmoid",
    lambda x: -_np_softplus(-x),
    "`log(sigmoid(x))` without overflow.",
    promotion="float",
    decompose=lambda x: minimum(x, 0.0) - log1p(exp(-abs_(x))),
    gradient=lambda g, x: g * sigmoid(-x),
    samples=Uniform(special=False),
    tolerance=Tolerance(8.0),
    autocast=Autocast.FLOAT32,
)
