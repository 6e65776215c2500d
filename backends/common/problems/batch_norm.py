"""Batch norm operands as (images, channels, inner), checked for support by the kernels."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.problems.norm import Inputs, parameter_refusal
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec


@dataclass(frozen=True, slots=True)
class ChannelPlanes:
    """A tensor as (images, channels, inner), with `inner` contiguous elements per image and channel."""

    images: int
    channels: int
    inner: int
    steps: tuple[int, int]
    """Strides of images and channels, in elements."""


def forward(inputs: Inputs) -> ChannelPlanes | Declined:
    """Return the planes of x; `inputs` are x, weight and bias."""
    refusal = parameter_refusal(*inputs[1:])
    return Declined(refusal) if refusal else _planes(inputs[0])


def with_addend(inputs: Inputs) -> tuple[ChannelPlanes, ChannelPlanes] | Declined:
    """Return the planes of x and the addend; `inputs` are x, the addend, weight and bias."""
    x, addend, *parameters = inputs
    x_planes = forward((x, *parameters))
    if isinstance(x_planes, Declined):
        return x_planes
    if not isinstance(x, Spec) or not isinstance(addend, Spec) or addend.dtype is not x.dtype:
        return Declined("the operands have different dtypes")
    planes = _planes(addend)
    return planes if isinstance(planes, Declined) else (x_planes, planes)


def backward(inputs: Inputs, *, relu: bool = False) -> tuple[ChannelPlanes, ChannelPlanes] | Declined:
    """Return the planes of g and x; `inputs` are g, x, weight, the bias if `relu`, mean and variance."""
    g, x, *_ = inputs
    statistics = inputs[4 if relu else 3 :]
    refusal = parameter_refusal(*inputs[2:])
    if refusal:
        return Declined(refusal)
    if not isinstance(g, Spec) or not isinstance(x, Spec) or g.dtype is not x.dtype:
        return Declined("the operands have different dtypes")
    if any(s is None or s.dtype is not accumulator(x.dtype) for s in statistics):
        return Declined("the statistics have an unexpected dtype")
    g_planes, x_planes = _planes(g), _planes(x)
    if isinstance(g_planes, Declined):
        return g_planes
    return x_planes if isinstance(x_planes, Declined) else (g_planes, x_planes)


def _planes(spec: InputSpec | None) -> ChannelPlanes | Declined:
    if not isinstance(spec, Spec):
        return Declined("an operand is a number")
    lengths, (steps,) = collapse(spec.shape[2:], (spec.strides[2:],))
    if len(lengths) > 1 or (lengths[0] > 1 and steps[0] != 1):
        return Declined("the axes after the channels are not contiguous")
    return ChannelPlanes(spec.shape[0], spec.shape[1], lengths[0], (spec.strides[0], spec.strides[1]))
