"""Attention and its gradient: which kernel takes which call. None of them ever holds the scores in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.opencl.lowering.attention import arguments, cpu, decode, mma, tiles
from polyhal.backends.opencl.lowering.attention.arguments import Attention, Inputs
from polyhal.backends.opencl.lowering.attention.mma import Kernels
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch


def _attention(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    call = arguments.forward(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    if not decode.refusal(call):
        return decode.forward(runtime, call)
    if runtime.features.cpu:
        return cpu.forward(runtime, call)
    kernels = _units(runtime, call)
    if kernels is not None:
        return mma.forward(runtime, call, kernels)
    return tiles.forward(runtime, call)


def _attention_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    call = arguments.backward(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    if runtime.features.cpu:
        return cpu.backward(runtime, call)
    kernels = _units(runtime, call)
    if kernels is not None:
        return mma.backward(runtime, call, kernels)
    # Other vendors' devices have no addition of floats in memory that is fast.
    adding = runtime.features.tensor_cores and call.dtype is dtypes.float32 and not params.get("deterministic", False)
    return tiles.backward(runtime, call, adding=adding)


def _units(runtime: Runtime, call: Attention) -> Kernels | None:
    """What the device's matrix units do the call with."""
    if not runtime.features.tensor_cores:
        return None
    kernels = mma.choose(runtime, call)
    return None if isinstance(kernels, Declined) else kernels


LOWERINGS: dict[str, LoweringFunction] = {"attention": _attention, "attention_grad": _attention_grad}
