"""Attention and its gradient: choice of the kernel for a call. No kernel writes the scores to memory.

GPUs whose local memory is not on the chip decline calls with few scores, which run as products and a softmax.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.opencl_c.lowering.attention import cpu, decode, few_queries, fused_grad, mma, ping_pong, tiles
from polyhal.backends.opencl_c.lowering.attention.call import (
    AttentionCall,
    Inputs,
    backward_call,
    cached_call,
    forward_call,
)
from polyhal.backends.opencl_c.lowering.attention.operand_copies import with_vectors
from polyhal.backends.opencl_c.lowering.attention.rotary_attention import rotary_attention
from polyhal.backends.opencl_c.lowering.attention.rotary_store import rotary_store
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
    call = call.with_shared_keys_as_rows()
    division = few_queries.choose(runtime, call)
    if division is not None:
        return few_queries.forward(runtime, call, division)
    if not decode.refusal(runtime, call):
        return decode.forward(runtime, call)
    if runtime.features.cpu:
        return cpu.forward(runtime, call)
    return with_vectors(runtime, call, _vector(call), partial(_on_gpu, runtime))


def _cached_attention(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    call = cached_call(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    call = call.with_shared_keys_as_rows()
    reason = decode.refusal(runtime, call)
    if not reason:
        return decode.forward(runtime, call)
    if call.dtype is dtypes.int8:
        return Declined(f"integers, and {reason}")
    if runtime.features.cpu:
        return cpu.forward(runtime, call)
    if runtime.features.tensor_cores and call.aligned(_vector(call)):
        tiles = mma.choose(runtime, call)
        return tiles if isinstance(tiles, Declined) else mma.forward(runtime, call, tiles.forward)
    return Declined(reason)


def _on_gpu(runtime: Runtime, call: AttentionCall) -> Launch | Declined:
    whole = ping_pong.choose(runtime, call)
    if whole is not None:
        return ping_pong.forward(runtime, call, whole)
    mma_tiles = mma.choose(runtime, call) if runtime.features.tensor_cores else Declined("no matrix units")
    if not isinstance(mma_tiles, Declined):
        return mma.forward(runtime, call, mma_tiles.forward)
    return _unstaged(runtime, call) or tiles.forward(runtime, call)


def _attention_grad(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    call = backward_call(inputs, outputs, params)
    if isinstance(call, Declined):
        return call
    if runtime.features.cpu:
        return cpu.backward(runtime, call)
    deterministic = bool(params.get("deterministic", False))
    return with_vectors(runtime, call, _vector(call), partial(_grad_on_gpu, runtime, deterministic=deterministic))


def _grad_on_gpu(runtime: Runtime, call: AttentionCall, deterministic: bool) -> Launch | Declined:
    fused = None if deterministic else fused_grad.choose(runtime, call)
    if fused is not None:
        return fused_grad.backward(runtime, call, fused)
    mma_tiles = mma.choose(runtime, call) if runtime.features.tensor_cores else Declined("no matrix units")
    if not isinstance(mma_tiles, Declined):
        return mma.backward(runtime, call, mma_tiles)
    if declined := _unstaged(runtime, call):
        return declined
    # Only NVIDIA's devices have a fast atomic addition of floats.
    atomic = runtime.features.tensor_cores and call.dtype is dtypes.float32 and not deterministic
    return tiles.backward(runtime, call, fuse_dq=atomic)


def _vector(call: AttentionCall) -> int:
    """Return the elements that kernels for GPUs read at once."""
    return 8 if call.dtype.itemsize == 2 else 4


def _unstaged(runtime: Runtime, call: AttentionCall) -> Declined | None:
    """Decline a call for which products with operands in place and scores in memory are faster; None to use tiles."""
    scores = call.shape.count * call.shape.t * call.shape.s * call.itemsize
    if runtime.features.local_memory_is_real or scores > _MAX_SCORES:
        return None
    return Declined("local memory is not on the chip, so staging tiles in it saves nothing")


LOWERINGS: dict[str, LoweringFunction] = {
    "attention": _attention,
    "attention_grad": _attention_grad,
    "cached_attention": _cached_attention,
    "quantized_cached_attention": _cached_attention,
    "rotary_attention": rotary_attention,
    "rotary_store": rotary_store,
}
