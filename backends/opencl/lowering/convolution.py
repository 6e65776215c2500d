"""Convolution and its gradients: which kernels take which shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.convolutions import geometry, refusal
from polyhal.backends.common.lowering import LoweringFunction
from polyhal.backends.opencl.lowering import conv_direct, conv_planes, conv_tiles, conv_weight_grad, conv_winograd
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
_FEW = 4
"""Filters per group up to which there is no matrix product to speak of."""


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = geometry(x.shape, weight.shape, outputs[0].shape, params)
    reason = refusal(g, x, weight, *([bias] if bias is not None else []))
    if not reason and isinstance(bias, Spec) and not bias.is_contiguous:
        reason = "the bias is not contiguous"
    if reason:
        return Declined(reason)
    if not runtime.features.cpu:
        build = conv_direct.forward if g.filters <= _FEW else conv_tiles.forward
    else:
        build = conv_winograd.forward if conv_winograd.pays(runtime, g, outputs[0]) else conv_planes.forward
    return build(runtime, inputs, outputs, g, params)


def _input_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    slope, weight = inputs
    if not isinstance(slope, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = geometry(outputs[0].shape, weight.shape, slope.shape, params)
    reason = refusal(g, slope, weight)
    if reason:
        return Declined(reason)
    if not runtime.features.cpu:
        build = conv_tiles.input_grad
    else:
        pays = conv_winograd.pays(runtime, conv_winograd.turned(g), outputs[0])
        build = conv_winograd.input_grad if pays else conv_planes.input_grad
    return build(runtime, inputs, outputs, g, params)


def _weight_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    slope, x = inputs
    if not isinstance(slope, Spec) or not isinstance(x, Spec):
        return Declined("an operand is a number")
    g = geometry(x.shape, outputs[0].shape, slope.shape, params)
    reason = refusal(g, slope, x)
    if reason:
        return Declined(reason)
    build = conv_weight_grad.weight_grad if runtime.features.cpu else conv_tiles.weight_grad
    return build(runtime, inputs, outputs, g, params)


LOWERINGS: dict[str, LoweringFunction] = {
    "conv2d": _forward,
    "conv2d_input_grad": _input_grad,
    "conv2d_weight_grad": _weight_grad,
}
