"""Attention and its gradient: which kernel takes which call. None of them ever holds the scores in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.lowering import LoweringFunction
from polyhal.backends.opencl.lowering import (
    attention_arguments,
    attention_decode,
    attention_fragments,
    attention_panels,
    attention_tiles,
)
from polyhal.backends.opencl.lowering.attention_arguments import Attention, Inputs
from polyhal.backends.opencl.lowering.attention_fragments import Kernels
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch


def _attention(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    call = attention_arguments.forward(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    if not attention_decode.refusal(call):
        return attention_decode.forward(runtime, call)
    if runtime.features.cpu:
        return attention_panels.forward(runtime, call)
    kernels = _units(runtime, call)
    if kernels is not None:
        return attention_fragments.forward(runtime, call, kernels)
    return attention_tiles.forward(runtime, call)


def _attention_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    call = attention_arguments.backward(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    if runtime.features.cpu:
        return attention_panels.backward(runtime, call)
    kernels = _units(runtime, call)
    if kernels is not None:
        return attention_fragments.backward(runtime, call, kernels)
    # Other vendors' devices have no addition of floats in memory that is fast.
    adding = runtime.features.tensor_cores and call.dtype is dtypes.float32 and not params.get("deterministic", False)
    return attention_tiles.backward(runtime, call, adding=adding)


def _units(runtime: Runtime, call: Attention) -> Kernels | None:
    """What the device's matrix units do the call with."""
    if not runtime.features.tensor_cores:
        return None
    kernels = attention_fragments.choose(runtime, call)
    return None if isinstance(kernels, Declined) else kernels


LOWERINGS: dict[str, LoweringFunction] = {"attention": _attention, "attention_grad": _attention_grad}
