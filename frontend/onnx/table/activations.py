"""Activations."""

from __future__ import annotations

from typing import Any

import polyhal as ph
from polyhal.nn import functional
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import flattened
from polyhal.tensor import Tensor


@operator("Relu")
def relu(x: Tensor) -> Any:
    return ph.relu(x) if x.dtype.is_floating_point else ph.maximum(x, 0)


@operator("Sigmoid")
def sigmoid(x: Tensor) -> Any:
    return ph.sigmoid(x)


@operator("Softsign")
def softsign(x: Tensor) -> Any:
    return functional.softsign(x)


@operator("Softplus")
def softplus(x: Tensor) -> Any:
    return functional.softplus(x)


@operator("Mish")
def mish(x: Tensor) -> Any:
    return functional.mish(x)


@operator("HardSwish")
def hard_swish(x: Tensor) -> Any:
    return functional.hardswish(x)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Any:
    return functional.silu(x) if alpha == 1 else x * ph.sigmoid(x * alpha)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Any:
    return functional.gelu(x, approximate)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Any:
    return ph.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Any:
    return ph.celu(x, alpha)


@operator("Selu")
def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    return ph.elu(x, alpha) * gamma


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Any:
    return ph.leaky_relu(x, alpha)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Any:
    return ph.where(x > alpha, x, 0.0)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return ph.clip(x * alpha + beta, 0.0, 1.0)


@operator("Shrink")
def shrink(x: Tensor, *, lambd: float = 0.5, bias: float = 0.0) -> Any:
    low, high = x + bias, x - bias
    return ph.where(x < -lambd, low, ph.where(x > lambd, high, ph.zeros_like(x)))


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Any:
    return ph.where(x < 0, x * slope, x)


@operator("Clip", numbers=True)
def clip(x: Tensor, min: Value = None, max: Value = None) -> Any:  # noqa: A002
    x = x if min is None else ph.maximum(x, min)
    return x if max is None else ph.minimum(x, max)


@operator("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Any:
    return ph.softmax(x, axis)


@operator("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Any:
    return ph.log_softmax(x, axis)


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Any:
    axis %= x.ndim
    positions = ph.arange(0, x.shape[axis], device=x.device).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    return (ph.argmax(x, axis, keepdims=True) == positions).to(x.dtype)


@operator("Softmax", "LogSoftmax", "Hardmax")
def of_rows(x: Tensor, *, axis: int = 1, node: NodeFacts) -> Any:
    function = {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}[node.op]
    return ph.reshape(function(flattened(x, axis)), x.shape)
