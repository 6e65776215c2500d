"""Queries and keys rotated, and keys and values stored in a cache. Kernel: shaders/wgsl/attention/rotary_store.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
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
    if len({s.dtype for s in (q, k, v)}) > 1 or len({s.dtype for s in outputs[:2]}) > 1:
        return Declined("queries, keys and values of several dtypes")
    if cosines.dtype is not sines.dtype:
        return Declined(f"cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    contiguous = all(s.strides[-1] == 1 or s.shape[-1] == 1 for s in (q, k, v, cosines, sines))
    if not contiguous or not all(out.is_contiguous for out in outputs):
        return Declined("results, or features of operands, that are not contiguous")
    if too_large(runtime, *specs, *outputs):
        return OPERAND_TOO_LARGE
    batch, heads, rows, width = q.shape
    half, group = cosines.shape[-1], runtime.features.group_size
    size = batch * (heads + 2 * k.shape[1]) * rows * (width // 2)
    args: Arguments = {
        **{name: Tensor(2 + i) for i, name in enumerate(_OPERANDS)},
        **{
            f"{name}_{axis}": s.strides[i]
            for name, s in (("q", q), ("k", k), ("v", v))
            for i, axis in enumerate(("b0", "b1", "row"))
        },
        **_angles("cosines", cosines, (batch, 1, rows, half)),
        **_angles("sines", sines, (batch, 1, rows, half)),
        "lengths_step": lengths.strides[0],
        "size": size,
        "heads": heads,
        "cached": k.shape[1],
        "rows": rows,
        "width": width,
        "half_": half,
        "capacity": cached.shape[2],
    }
    definitions = {
        "DTYPE": q.dtype.name,
        "CACHE_DTYPE": cached.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "INTERLEAVED": bool(params["interleaved"]),
        "GROUP": group,
    }
    launch = runtime.launch("attention/rotary_store", definitions, args, ceil_div(size, group))
    copied = copy_unless_aliased(copy.copy, runtime, [(0, 0), (1, 1)], inputs, outputs)
    return LaunchSequence((copied, launch))


def _angles(name: str, spec: Spec, shape: tuple[int, ...]) -> dict[str, int]:
    b0, _, row, _ = broadcast_strides(spec.shape, spec.strides, shape)
    return {f"{name}_b0": b0, f"{name}_row": row}
