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
from polyhal.backends.opencl.lowering.attention_arguments import Inputs
from polyhal.backends.opencl.runtime import Runtime
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
    if runtime.features.tensor_cores and not attention_fragments.refusal(call):
        return attention_fragments.forward(runtime, call)
    return attention_tiles.forward(runtime, call)


def _attention_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    call = attention_arguments.backward(inputs, params)
    if isinstance(call, Declined):
        return call
    if runtime.features.cpu:
        return attention_panels.backward(runtime, call)
    if runtime.features.tensor_cores and not attention_fragments.refusal(call):
        return attention_fragments.backward(runtime, call)
    return attention_tiles.backward(runtime, call)


LOWERINGS: dict[str, LoweringFunction] = {"attention": _attention, "attention_grad": _attention_grad}
