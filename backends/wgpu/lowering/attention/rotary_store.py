"""Queries and keys rotated, and keys and values stored in a cache. Kernel: shaders/wgsl/attention/rotary_store.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.common.problems.rotary import STRIDES, several_dtypes, stored_pairs, stored_sizes
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_OPERANDS = ("q", "k", "v", "lengths", "cosines", "sines", "keys", "values", "out")
"""Buffers by their position in the argument list, starting at 2; the cache, which results replace, is 0 and 1."""


def rotary_store(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `rotary_store`."""
    specs = [s for s in inputs if isinstance(s, Spec)]
    cached, _, q, k, v, lengths, cosines, sines = specs
    most = runtime.features.max_buffers
    if len(_OPERANDS) > most:
        return Declined(f"the kernel has {len(_OPERANDS)} buffers; the device supports {most}")
    if refused := several_dtypes(q, k, v, outputs):
        return refused
    if cosines.dtype is not sines.dtype:
        return Declined(f"cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    contiguous = all(s.strides[-1] == 1 or s.shape[-1] == 1 for s in (q, k, v, cosines, sines))
    if not contiguous or not all(out.is_contiguous for out in outputs):
        return Declined("results, or features of operands, that are not contiguous")
    if too_large(runtime, *specs, *outputs):
        return OPERAND_TOO_LARGE
    group, table = runtime.features.group_size, (q.shape[0], 1, q.shape[2], cosines.shape[-1])
    args: Arguments = {
        **{name: Tensor(2 + i) for i, name in enumerate(_OPERANDS)},
        **{
            f"{name}_{axis}": s.strides[i]
            for name, s in (("q", q), ("k", k), ("v", v))
            for i, axis in enumerate(STRIDES[:3])
        },
        **_angles("cosines", cosines, table),
        **_angles("sines", sines, table),
        "lengths_step": lengths.strides[0],
        **stored_sizes(q, k, cached, cosines),
    }
    definitions = {
        "DTYPE": q.dtype.name,
        "CACHE_DTYPE": cached.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "INTERLEAVED": bool(params["interleaved"]),
        "GROUP": group,
    }
    launch = runtime.launch("attention/rotary_store", definitions, args, ceil_div(stored_pairs(q, k), group))
    copied = copy_unless_aliased(copy.copy, runtime, [(0, 0), (1, 1)], inputs, outputs)
    return LaunchSequence((copied, launch))


def _angles(name: str, spec: Spec, shape: tuple[int, ...]) -> dict[str, int]:
    b0, _, row, _ = broadcast_strides(spec.shape, spec.strides, shape)
    return {f"{name}_b0": b0, f"{name}_row": row}
