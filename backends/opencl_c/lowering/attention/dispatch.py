"""Attention and its gradient: choice of the kernel for a call. No kernel writes the scores to memory.

GPUs whose local memory is not on the chip decline calls with few scores, which run as products and a softmax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.opencl_c.lowering.attention import cpu, decode, mma, tiles
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall, Inputs, backward_call, forward_call
from polyhal.backends.opencl_c.lowering.attention.mma import MmaTiles
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_MAX_SCORES = 1 << 24
"""Maximum bytes of scores that are written to memory on devices where staging is not faster."""


def _attention(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    call = forward_call(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    if not decode.refusal(call):
        return decode.forward(runtime, call)
    if runtime.features.cpu:
        return cpu.forward(runtime, call)
    mma_tiles = _mma_tiles(runtime, call)
    if mma_tiles is not None:
        return mma.forward(runtime, call, mma_tiles)
    return _unstaged(runtime, call) or tiles.forward(runtime, call)


def _attention_grad(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    call = backward_call(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    if runtime.features.cpu:
        return cpu.backward(runtime, call)
    mma_tiles = _mma_tiles(runtime, call)
    if mma_tiles is not None:
        return mma.backward(runtime, call, mma_tiles)
    if declined := _unstaged(runtime, call):
        return declined
    # Only NVIDIA's devices have a fast atomic addition of floats.
    atomic = runtime.features.tensor_cores and call.dtype is dtypes.float32 and not params.get("deterministic", False)
    return tiles.backward(runtime, call, fuse_dq=atomic)


def _unstaged(runtime: Runtime, call: AttentionCall) -> Declined | None:
    """Decline a call for which products with operands in place and scores in memory are faster; None to use tiles."""
    scores = call.shape.count * call.shape.t * call.shape.s * call.itemsize
    if runtime.features.local_memory_is_real or scores > _MAX_SCORES:
        return None
    return Declined("local memory is not on the chip, so staging tiles in it saves nothing")


def _mma_tiles(runtime: Runtime, call: AttentionCall) -> MmaTiles | None:
    """Return the tiles if the device has matrix units and they support the call."""
    if not runtime.features.tensor_cores:
        return None
    chosen = mma.choose(runtime, call)
    return None if isinstance(chosen, Declined) else chosen


LOWERINGS: dict[str, LoweringFunction] = {"attention": _attention, "attention_grad": _attention_grad}
