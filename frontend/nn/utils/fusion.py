"""Batch norms of a trained model, computed into the weights of the layer before them."""

from __future__ import annotations

import copy
from typing import Any

from polyhal import functions as ops
from polyhal.hal.errors import message
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor

Pair = tuple[Parameter, Parameter]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a copy of a convolution that includes the batch norm `bn` of its results in evaluation.

    `transpose` says that it is a transposed convolution. Raises ValueError for layers in training, and without statistics.
    """
    fused = _copied("fuse_conv_bn_eval", conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> Pair:
    """Return weights (out, in, ...) and bias (out,) of a convolution with a batch norm of its results.

    With `transpose` the weights are (in, out, ...). `bn_rm` and `bn_rv` are running mean and variance.
    """
    axes = [1] * conv_w.ndim
    axes[1 if transpose else 0] = -1
    scale, bias = _scale_and_bias(conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return Parameter((conv_w * ops.reshape(scale, tuple(axes))).detach(), conv_w.requires_grad), bias


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a copy of a linear layer that includes the batch norm `bn` of its results in evaluation.

    Raises ValueError for layers in training, without statistics, and of other numbers of features than each other.
    """
    fused = _copied("fuse_linear_bn_eval", linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        problem = f"{linear.out_features} features out, and {bn.num_features} in the batch norm"
        raise ValueError(message("fuse_linear_bn_eval", problem, expected="the same, or one"))
    fused.weight, fused.bias = fuse_linear_bn_weights(
        linear.weight, linear.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> Pair:
    """Return weights (out, in) and bias (out,) of a linear layer with a batch norm of its results."""
    scale, bias = _scale_and_bias(linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return Parameter((linear_w * ops.reshape(scale, (-1, 1))).detach(), linear_w.requires_grad), bias


def _copied(name: str, layer: Any, norm: Any) -> Any:
    if layer.training or norm.training:
        raise ValueError(message(name, "a layer is in training", fix="call eval() on both"))
    if norm.running_mean is None:
        raise ValueError(message(name, "the batch norm has no running statistics"))
    return copy.deepcopy(layer)


def _scale_and_bias(
    bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float, weight: Tensor | None, shift: Tensor | None
) -> tuple[Tensor, Parameter]:
    """Return the factors of the weights, and the new bias."""
    scale = ops.rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    moved = -mean if bias is None else bias - mean
    result = moved * scale if shift is None else moved * scale + shift
    return scale, Parameter(result.detach(), bias is None or bias.requires_grad)
