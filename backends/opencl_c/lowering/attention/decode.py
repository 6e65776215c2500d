"""Flash decoding: attention of a few queries, bound by the memory traffic of keys and values, which are read in place."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Workspace
from polyhal.backends.opencl_c.lowering.attention import split_keys
from polyhal.backends.opencl_c.lowering.attention.call import Args, AttentionCall
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_ROWS = 4
"""Queries that a group holds in registers, if there are several."""
_MAX_QUERIES = 16
"""Maximum number of queries on GPUs, in blocks that read the same keys; tiled kernels handle more. CPUs take one block:
with 8 queries, kernels that pack keys took 163 to 327 us there, two blocks 310 to 511."""
_MAX_HEAD_SIZE = 256
"""Features that fit into a work-item's registers on a CPU, where it holds whole keys."""
_WARP_LANES = 16
"""Maximum number of work-items that share a key on NVIDIA's devices: half a warp, whose shuffles sum scores."""


@dataclass(frozen=True, slots=True)
class DecodeTile:
    """A group has `key_lanes` rows of `feature_lanes` work-items, which read vectors of `width` features."""

    width: int
    feature_lanes: int
    key_lanes: int
    keys_per_step: int
    """Keys that each row of a group processes at a time."""
    min_keys: int
    """Minimum number of keys per group of a split head."""
    groups_per_unit: int
    """Groups per compute unit that saturate its memory bandwidth."""


def refusal(runtime: Runtime, call: AttentionCall) -> str:
    """Return the reason why the kernel does not support a call; empty if it does."""
    s = call.shape
    limit = _ROWS if runtime.features.cpu and call.cache is None else _MAX_QUERIES
    if s.t > limit:
        return f"{s.t} queries; the kernel takes {limit}"
    if call.head_size > _MAX_HEAD_SIZE:
        return f"heads of {call.head_size} features; the kernel takes {_MAX_HEAD_SIZE}"
    if any(spec.strides[-1] != 1 for spec in call.specs):
        return "the features of a head are not contiguous"
    return ""


def choose(runtime: Runtime, call: AttentionCall) -> DecodeTile:
    """Return the tile for a device and the features of keys and values."""
    s = call.shape
    width = runtime.features.vector_width // (call.itemsize // 4)
    while width > 1 and (s.d % width or s.e % width):
        width //= 2
    if runtime.features.cpu:
        return DecodeTile(width, feature_lanes=1, key_lanes=1, keys_per_step=8, min_keys=512, groups_per_unit=1)
    group = power_of_two_at_most(min(128, runtime.features.max_group_size))
    lanes, keys_of_many = power_of_two_at_least(ceil_div(call.head_size, width)), 4
    if runtime.features.tensor_cores:
        most_lanes = _WARP_LANES
    else:  # other GPUs: registers for two vectors of a key with one query, else for one vector each of two keys
        most_lanes, keys_of_many = max(_WARP_LANES, lanes // 2 if s.t == 1 else lanes), 2
    feature_lanes = min(lanes, most_lanes, group // 2)
    keys_per_step = 8 if s.t == 1 else keys_of_many
    return DecodeTile(width, feature_lanes, group // feature_lanes, keys_per_step, min_keys=256, groups_per_unit=8)


def forward(runtime: Runtime, call: AttentionCall, chosen: DecodeTile | None = None) -> Launch | Declined:
    """Build the launch of the output and the logsumexp, or two launches if heads are split."""
    reason = refusal(runtime, call)
    if reason:
        return Declined(reason)
    s = call.shape
    tile = chosen or choose(runtime, call)
    rows = 1 if s.t == 1 else _ROWS
    blocks = s.count * ceil_div(s.t, rows)
    split = split_keys.choose(
        runtime, call, blocks, tile.groups_per_unit, tile.min_keys, tile.keys_per_step * tile.key_lanes
    )
    definitions = call.definitions(
        WIDTH=tile.width,
        ALIGNED=call.aligned(tile.width),
        FEATURE_LANES=tile.feature_lanes,
        KEY_LANES=tile.key_lanes,
        KEYS_PER_STEP=tile.keys_per_step,
        ROWS=rows,
        KEY_VECTORS=ceil_div(s.d, tile.feature_lanes * tile.width),
        VALUE_VECTORS=ceil_div(s.e, tile.feature_lanes * tile.width),
        SPLIT=split.splits > 1,
        TENSOR_CORES=runtime.features.tensor_cores and call.real == "float",
    )
    results: Args = {"partial": Workspace(call.first_workspace)} if split.splits > 1 else call.outputs()
    args = {**call.operands(), **results, **call.geometry()}
    if call.cache is None:
        args["keys_per_group"] = split.terms
    group = tile.feature_lanes * tile.key_lanes
    items = (split.splits * group, s.count, ceil_div(s.t, rows))
    attend = runtime.launch("attention/decode", definitions, args, items, (group, 1, 1))
    return attend if split.splits == 1 else split_keys.combined(runtime, call, attend, split.splits)
