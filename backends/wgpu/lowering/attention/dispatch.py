"""Attention without materialised scores (FlashAttention): `tiles` on GPUs, `cpu` on CPUs; and attention to caches, `cached`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.attention import refusal
from polyhal.backends.wgpu.lowering.attention import cpu, tiles
from polyhal.backends.wgpu.lowering.attention.arguments import describe
from polyhal.backends.wgpu.lowering.attention.cached import cached_attention
from polyhal.backends.wgpu.lowering.attention.rotary_attention import rotary_attention
from polyhal.backends.wgpu.lowering.attention.rotary_store import rotary_store
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
_LONG = "its shader is too long for the driver's compiler"


def _attention(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    q, k, v, mask = inputs
    reason = _LONG if runtime.features.quirks.long_shaders else refusal((q, k, v), mask)
    if reason:
        return Declined(reason)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    masks = [mask] if isinstance(mask, Spec) else []
    if too_large(runtime, q, k, v, *masks, *outputs):
        return OPERAND_TOO_LARGE
    call = describe((q, k, v), masks[0] if masks else None, outputs[:1], bool(params["causal"]))
    if isinstance(call, Declined):
        return call
    strategy = cpu.forward(call) if runtime.features.cpu else tiles.forward(runtime, call)
    if isinstance(strategy, Declined):
        return strategy
    args: Arguments = {
        "q": Tensor(0),
        "k": Tensor(1),
        "v": Tensor(2),
        **({"mask": Tensor(3)} if masks else {}),
        "out": Tensor(4),
        "lse": Tensor(5),
        **call.scalars(params["scale"], {"q": q, "k": k, "v": v}),
    }
    groups = ceil_div(call.shape.t, strategy.rows) * call.shape.count
    definitions = {**call.definitions, **strategy.definitions}
    return runtime.launch(f"attention/{strategy.kernel}", definitions, args, groups)


def _attention_grad(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    g, q, k, v, mask, out, lse = inputs
    reason = _LONG if runtime.features.quirks.long_shaders else refusal((q, k, v, g, out), mask)
    if reason:
        return Declined(reason)
    assert isinstance(g, Spec)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    assert isinstance(out, Spec)
    if not isinstance(lse, Spec) or lse.dtype is not dtypes.float32:
        return Declined("the logsumexp has an unexpected dtype")
    if not out.is_contiguous or not lse.is_contiguous:
        return Declined("the saved results are not contiguous")
    masks = [mask] if isinstance(mask, Spec) else []
    if too_large(runtime, g, q, k, v, out, *masks, *outputs):
        return OPERAND_TOO_LARGE
    call = describe((g, q, k, v), masks[0] if masks else None, (out, *outputs), bool(params["causal"]))
    if isinstance(call, Declined):
        return call
    strategy = cpu.backward(call) if runtime.features.cpu else tiles.backward(runtime, call)
    if isinstance(strategy, Declined):
        return strategy
    # The arguments are 7 inputs, 3 outputs, then the workspace.
    shared: Arguments = {
        "g": Tensor(0),
        "q": Tensor(1),
        "k": Tensor(2),
        "v": Tensor(3),
        **({"mask": Tensor(4)} if masks else {}),
        "lse": Tensor(6),
        "delta": Workspace(10),
        **call.scalars(params["scale"], {"g": g, "q": q, "k": k, "v": v}),
    }
    queries: Arguments = {**shared, "out": Tensor(5), "dq": Tensor(7)}
    keys: Arguments = {**shared, "dk": Tensor(8), "dv": Tensor(9)}
    buffers = sum(isinstance(value, (Tensor, Workspace)) for value in queries.values())
    if buffers > (most := runtime.features.max_buffers):
        return Declined(f"the kernel has {buffers} buffers with a mask; the device supports {most}")
    steps = []
    for by_keys, length, args in ((False, call.shape.t, queries), (True, call.shape.s, keys)):
        definitions = {**call.definitions, **strategy.definitions, "KEYS": by_keys}
        groups = ceil_div(length, strategy.rows) * call.shape.count
        steps.append(runtime.launch(f"attention/{strategy.kernel}_grad", definitions, args, groups))
    return LaunchSequence(steps, (call.shape.count * call.shape.t * 4,))


LOWERINGS: dict[str, LoweringFunction] = {
    "attention": _attention,
    "attention_grad": _attention_grad,
    "cached_attention": cached_attention,
    "rotary_attention": rotary_attention,
    "rotary_store": rotary_store,
}
