"""Activations that are rearrangements around other ops: `glu` and `prelu`."""

from __future__ import annotations

from typing import Any

from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.activation import sigmoid
from polyhal.hal.ops.pointwise.piecewise import parametric_relu
from polyhal.hal.ops.tensor_like import TensorLike


@composite()
def glu(x: TensorLike, axis: int = -1) -> Any:
    """Gated linear unit: the first half along `axis` times the sigmoid of the second. Raises ValueError for an odd length.

    Source: Dauphin et al., arXiv:1612.08083.
    """
    axis = normalize_axis(axis, x.ndim)
    if x.shape[axis] % 2:
        raise ValueError(f"[glu] axis {axis} of shape {x.shape} has length {x.shape[axis]}; expected an even one")
    lengths = tuple(n // 2 if i == axis else n for i, n in enumerate(x.shape))
    starts = tuple(n // 2 if i == axis else 0 for i, n in enumerate(x.shape))
    ones, zeros = (1,) * x.ndim, (0,) * x.ndim
    return slice_(x, zeros, lengths, ones) * sigmoid(slice_(x, starts, lengths, ones))


@composite()
def prelu(x: TensorLike, weight: TensorLike) -> Any:
    """`x` if positive, else `weight * x`; `weight` has one element, or one per channel (axis 1). Raises ValueError otherwise.

    Source: He et al., arXiv:1502.01852.
    """
    if weight.ndim > 1:
        raise ValueError(f"[prelu] weight has shape {weight.shape}; expected one element or one per channel")
    if weight.size == 1:
        return parametric_relu(x, reshape(weight, ()))
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.size != channels:
        raise ValueError(
            f"[prelu] weight has {weight.size} elements, x {channels} channels; expected one or one per channel"
        )
    return parametric_relu(x, reshape(weight, (-1, *(1,) * (x.ndim - 2))))
