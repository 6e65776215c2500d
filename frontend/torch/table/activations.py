"""Activations and their gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.torch.registration import aten
from polyhal.torch.table.formulas import formula
from polyhal.torch.table.operands import F, cast, zeros
from polyhal.torch.table.pointwise import clamp
from polyhal.torch.table.random import uniform_numbers

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("threshold_backward")
def threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Any:
    if threshold == 0 and grad.shape == x.shape and grad.dtype is x.dtype:
        return F["relu_grad"](grad, x)
    return F["where"](x <= threshold, 0.0, grad)


@aten("leaky_relu_backward")
@formula
def leaky_relu_backward(grad: Tensor, x: Tensor, slope: float, is_result: bool) -> Any:
    return F["where"](x > 0, grad, grad * slope)


@aten("hardtanh")
def hardtanh(x: Tensor, low: float = -1, high: float = 1) -> Any:
    return clamp(x, low, high) if x.dtype.is_floating_point else clamp(x, int(low), int(high))


@aten("hardtanh_backward")
@formula
def hardtanh_backward(grad: Tensor, x: Tensor, low: float, high: float) -> Any:
    return F["where"](F["logical_and"](x > low, x < high), grad, 0.0)


@aten("softplus")
@formula
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    scaled = x if beta == 1 else x * beta
    out = F["softplus"](scaled)
    return F["where"](scaled > threshold, x, out if beta == 1 else out / beta)


@aten("softplus_backward")
@formula
def softplus_backward(grad: Tensor, x: Tensor, beta: float, threshold: float) -> Any:
    scaled = x if beta == 1 else x * beta
    return F["where"](scaled > threshold, grad, grad * F["sigmoid"](scaled))


@aten("elu")
def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    return F["elu"](x, alpha) if scale == 1 and input_scale == 1 else _scaled_elu(x, alpha * scale, scale, input_scale)


@formula
def _scaled_elu(x: Tensor, below: float, above: float, input_scale: float) -> Any:
    return F["where"](x > 0, x * above, F["expm1"](x * input_scale) * below)


@aten("elu_backward")
@formula
def elu_backward(grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor) -> Any:
    """Compute the gradient from the input or, if `is_result`, from the result."""
    below = alpha * scale
    slope = x + below if is_result else F["exp"](x * input_scale) * below
    return F["where"](x > 0, grad * scale, grad * slope * input_scale)


@aten("hardshrink_backward", "softshrink_backward")
@formula
def shrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Any:
    return F["where"](F["abs"](x) <= lambd, 0.0, grad)


@aten("hardsigmoid_backward")
@formula
def hardsigmoid_backward(grad: Tensor, x: Tensor) -> Any:
    return F["where"](F["abs"](x) < 3, grad * (1 / 6), 0.0)


@aten("hardswish_backward")
@formula
def hardswish_backward(grad: Tensor, x: Tensor) -> Any:
    return F["where"](F["abs"](x) < 3, grad * (x * (1 / 3) + 0.5), F["where"](x > 0, grad, 0.0))


@aten("mish_backward")
@formula
def mish_backward(grad: Tensor, x: Tensor) -> Any:
    bent = F["tanh"](F["softplus"](x))
    return grad * (bent + x * F["sigmoid"](x) * (1 - bent * bent))


@aten("log_sigmoid_forward")
def log_sigmoid(x: Tensor) -> Any:
    """Return the result, and an empty buffer that only PyTorch's CPU kernels use."""
    return F["logsigmoid"](x), zeros((0,), x.dtype, x.device)


@aten("log_sigmoid_backward")
def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor) -> Any:
    return _log_sigmoid_slopes(grad, x)


@formula
def _log_sigmoid_slopes(grad: Tensor, x: Tensor) -> Any:
    return grad * F["sigmoid"](-x)


@aten("_prelu_kernel")
@formula
def prelu(x: Tensor, weight: Tensor) -> Any:
    return F["where"](x > 0, x, x * weight)


@aten("_prelu_kernel_backward")
@formula
def prelu_backward(grad: Tensor, x: Tensor, weight: Tensor) -> Any:
    positive = x > 0
    return F["where"](positive, grad, grad * weight), F["where"](positive, 0.0, grad * x)


@aten("glu")
def glu(x: Tensor, dim: int = -1) -> Any:
    if not x.shape or x.shape[dim] % 2:
        return F["glu"](x, dim)  # raises
    return _gated(*F["chunk"](x, 2, dim))


@formula
def _gated(values: Tensor, gates: Tensor) -> Any:
    return values * F["sigmoid"](gates)


@aten("glu_backward")
def glu_backward(grad: Tensor, x: Tensor, dim: int) -> Any:
    return F["concat"](list(_gated_slopes(grad, *F["chunk"](x, 2, dim))), dim)


@formula
def _gated_slopes(grad: Tensor, values: Tensor, gates: Tensor) -> Any:
    open_ = F["sigmoid"](gates)
    through = grad * open_
    return through, through * values * (1 - open_)


@aten("logit_backward")
@formula
def logit_backward(grad: Tensor, x: Tensor, eps: float | None = None) -> Any:
    slope = grad / (x * (1 - x))
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
    return F["where"](F["logical_and"](x >= low, x <= high), slope, math.nan if eps is None else 0.0)


@aten("rrelu_with_noise")
def rrelu(x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    """Return the result. In training, draw the slopes and write them to `noise`; they are 1 where the input is positive."""
    if not training:
        return F["leaky_relu"](x, (lower + upper) / 2)
    drawn = uniform_numbers(x.shape, x.dtype, x.device) * (upper - lower) + lower
    slopes = F["where"](x > 0, 1.0, drawn)
    dispatch.thread.executor.overwrite(noise, cast(slopes, noise.dtype))
    return x * slopes
