"""Attention of one new position per sequence, with its rotation and its place in a cache, in one launch.

Kernel: shaders/wgsl/attention/rotary_attention.wgsl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.common.problems.rotary import several_dtypes
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_OPERANDS = ("q", "k", "v", "lengths", "cosines", "sines", "keys", "values", "out")
"""Buffers by their position in the argument list, starting at 2; the cache, which results replace, is 0 and 1."""
_FEATURES = 8
"""Features of a head per invocation."""
_GROUP = 256
_ROWS = 2
"""Maximum queries of a workgroup, whose sums are in registers."""
_KEYS = 4
"""Keys per invocation at a time."""
_MOST_KEYS = 2048
"""Positions of a cache above which more workgroups per head, in two launches, are faster."""
_MEMORY = 1 << 14
"""Bytes of workgroup memory for the results of a workgroup's parts."""


@dataclass(frozen=True, slots=True)
class PositionTile:
    """A workgroup of `group` invocations takes `rows` queries, and each invocation `keys` keys at a time."""

    group: int
    rows: int
    keys: int


def choose(runtime: Runtime, q: Spec, cached: Spec) -> PositionTile | Declined:
    """Return the tile for a device and shapes, or the reason why several launches take the op."""
    features = runtime.features
    size, lanes = q.shape[3], q.shape[3] // _FEATURES
    smallest = features.subgroup_sizes[0] if features.subgroups else 0
    if size % _FEATURES or lanes & (lanes - 1) or not 1 <= lanes <= smallest:
        return Declined(f"heads of {size} features; invocations of {smallest} exchange values by shuffles")
    if cached.shape[2] > _MOST_KEYS:
        return Declined(f"a cache of {cached.shape[2]} positions")
    group = features.group_size if features.cpu else min(_GROUP, power_of_two_at_most(features.max_group_size))
    most = max(1, _MEMORY // (max(1, group // smallest) * size * 4))
    rows = min(_ROWS, power_of_two_at_least(q.shape[1] // cached.shape[1]), power_of_two_at_most(most))
    return PositionTile(group, rows, _KEYS)


def rotary_attention(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `rotary_attention`."""
    specs = [s for s in inputs if isinstance(s, Spec)]
    cached, _, q, k, v, lengths, cosines, sines = specs
    if len(_OPERANDS) > (most := runtime.features.max_buffers):
        return Declined(f"the kernel has {len(_OPERANDS)} buffers; the device supports {most}")
    if refused := several_dtypes(q, k, v, outputs):
        return refused
    if cosines.dtype is not sines.dtype or any(s.dtype is dtypes.float64 for s in (q, cached, cosines)):
        return Declined(f"queries of {q.dtype.name}, cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    contiguous = all(s.strides[-1] == 1 or s.shape[-1] == 1 for s in (q, k, v, cosines, sines))
    if not contiguous or not all(out.is_contiguous and out.aligned for out in outputs):
        return Declined("results, or features of operands, that are not contiguous")
    if too_large(runtime, *specs, *outputs):
        return OPERAND_TOO_LARGE
    tile = choose(runtime, q, cached)
    if isinstance(tile, Declined):
        return tile
    shared, table = q.shape[1] // cached.shape[1], (q.shape[0], 1, 1, cosines.shape[-1])
    args: Arguments = {
        **{name: Tensor(2 + i) for i, name in enumerate(_OPERANDS)},
        **{
            f"{name}_{axis}": s.strides[i]
            for name, s in (("q", q), ("k", k), ("v", v))
            for i, axis in enumerate(("b0", "b1"))
        },
        **{
            f"{name}_b0": broadcast_strides(s.shape, s.strides, table)[0]
            for name, s in (("cosines", cosines), ("sines", sines))
        },
        "lengths_step": lengths.strides[0],
        "size": cached.shape[0] * cached.shape[1],
        "shared_": shared,
        "cached": cached.shape[1],
        "half_": cosines.shape[-1],
        "capacity": cached.shape[2],
        "window": params["window"] or 0,
        "scale": params["scale"],
        "softcap": params["softcap"] or 0.0,
    }
    definitions = {
        **group_reduce.definitions(runtime, tile.group, tile.group),
        "DTYPE": q.dtype.name,
        "CACHE_DTYPE": cached.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "HEAD_SIZE": q.shape[3],
        "INTERLEAVED": bool(params["interleaved"]),
        "SOFTCAP": params["softcap"] is not None,
        "ROWS": tile.rows,
        "KEYS": tile.keys,
    }
    groups = cached.shape[0] * cached.shape[1] * ceil_div(shared, tile.rows)
    launch = runtime.launch("attention/rotary_attention", definitions, args, groups)
    copied = copy_unless_aliased(copy.copy, runtime, [(0, 0), (1, 1)], inputs, outputs)
    return LaunchSequence((copied, launch))
