"""Normalization."""

from __future__ import annotations

from typing import Any

import polyhal as ph
from polyhal.nn import functional
from polyhal.onnx.registration import NodeFacts, operator
from polyhal.tensor import Tensor


def _channels(v: Tensor, x: Tensor) -> Any:
    return ph.reshape(v, (-1, *[1] * (x.ndim - 2)))


@operator("BatchNormalization")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Any:
    if not training_mode:
        mean, variance, scale, bias = (v.to(x.dtype) for v in (mean, variance, scale, bias))
        return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)
    axes = tuple(i for i in range(x.ndim) if i != 1)
    found = ph.mean(x, axes), ph.var(x, axes, correction=0)
    normalized = (x - _channels(found[0], x)) / ph.sqrt(_channels(found[1], x) + epsilon)
    out = normalized * _channels(scale, x) + _channels(bias, x)
    return out, mean * momentum + found[0] * (1 - momentum), variance * momentum + found[1] * (1 - momentum)


@operator("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Any:
    return functional.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


@operator("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    node: NodeFacts,
) -> Any:
    shape = x.shape[axis:] if axis else x.shape
    if scale.shape == shape and (bias is None or bias.shape == shape):
        out = functional.layer_norm(x, shape, scale, bias, epsilon)
    else:
        out = functional.layer_norm(x, shape, None, None, epsilon) * scale
        out = out if bias is None else out + bias
    if not node.uses(1) and not node.uses(2):
        return out
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.to(ph.float32) if x.dtype.itemsize < 4 else x
    mean, variance = ph.mean(wide, axes, keepdims=True), ph.var(wide, axes, correction=0, keepdims=True)
    return out, mean, ph.rsqrt(variance + epsilon)


@operator("RMSNormalization")
def rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    shape = x.shape[axis:] if axis else x.shape
    if scale.shape == shape:
        return functional.rms_norm(x, shape, scale, epsilon)
    return functional.rms_norm(x, shape, None, epsilon) * scale


@operator("GroupNormalization", since=21)
def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return functional.group_norm(x, num_groups, scale, bias, epsilon)


@operator("LRN")
def lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = ph.pad(ph.square(x), [(before, after) if a == 1 else (0, 0) for a in range(x.ndim)], 0.0)
    total = ph.narrow(squares, 1, 0, x.shape[1])
    for i in range(1, size):
        total = total + ph.narrow(squares, 1, i, x.shape[1])
    return x / ph.pow(total * (alpha / size) + bias, beta)


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Any:
    norm = ph.sqrt(ph.sum(ph.square(x), axis, keepdims=True)) if p == 2 else ph.sum(ph.abs(x), axis, keepdims=True)
    return ph.where(norm == 0, 0.0, x / ph.where(norm == 0, 1.0, norm))
