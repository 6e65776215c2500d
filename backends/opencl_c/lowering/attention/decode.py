"""Flash decoding: attention of a few queries, bound by the memory traffic of keys and values, which are read in place."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.opencl_c.lowering.attention.call import Args, AttentionCall
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_QUERIES = 4
"""Maximum number of queries that the kernel holds in registers; tiled kernels handle more."""
_MAX_HEAD_SIZE = 256
"""Features that fit into a work-item's registers on a CPU, where it holds whole keys."""
_WARP_LANES = 16
"""Maximum number of work-items that share a key on NVIDIA's devices: half a warp, whose shuffles sum scores."""
_MAX_SPLITS = 64
"""Maximum number of groups that share a head."""
_REDUCE_GROUP = 64
"""Work-items per group of the launch that combines the groups' partial results."""
_PARTIAL_STATISTICS = 2
"""Reals of a partial result in addition to its features: the maximum and the sum of exponentials."""


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


def refusal(call: AttentionCall) -> str:
    """Return the reason why the kernel does not support a call; empty if it does."""
    s = call.shape
    if s.t > _MAX_QUERIES:
        return f"{s.t} queries; the kernel takes {_MAX_QUERIES}"
    if call.head_size > _MAX_HEAD_SIZE:
        return f"heads of {call.head_size} features; the kernel takes {_MAX_HEAD_SIZE}"
    if any(spec.strides[-1] != 1 for spec in call.specs):
        return "the features of a head are not contiguous"
    if not call.results[0].is_contiguous:
        return "the result is not contiguous"
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


def _split_keys(runtime: Runtime, call: AttentionCall, tile: DecodeTile) -> tuple[int, int]:
    """Return the number of groups that share a head, and the keys per group."""
    s = call.shape
    workers, multiple = tile.groups_per_unit * runtime.features.compute_units, tile.keys_per_step * tile.key_lanes
    split = split_k(s.s, s.count, workers, _MAX_SPLITS, min_terms=tile.min_keys, multiple=multiple, fill=True)
    return split.splits, split.terms


def forward(runtime: Runtime, call: AttentionCall, chosen: DecodeTile | None = None) -> Launch | Declined:
    """Build the launch of the output and the logsumexp, or two launches if heads are split."""
    reason = refusal(call)
    if reason:
        return Declined(reason)
    s = call.shape
    tile = chosen or choose(runtime, call)
    splits, keys_per_group = _split_keys(runtime, call, tile)
    definitions = call.definitions(
        WIDTH=tile.width,
        ALIGNED=call.aligned(tile.width),
        FEATURE_LANES=tile.feature_lanes,
        KEY_LANES=tile.key_lanes,
        KEYS_PER_STEP=tile.keys_per_step,
        ROWS=1 if s.t == 1 else _MAX_QUERIES,
        KEY_VECTORS=ceil_div(s.d, tile.feature_lanes * tile.width),
        VALUE_VECTORS=ceil_div(s.e, tile.feature_lanes * tile.width),
        SPLIT=splits > 1,
        TENSOR_CORES=runtime.features.tensor_cores and call.real == "float",
    )
    partial = Workspace(call.first_workspace)
    results: Args = {"partial": partial} if splits > 1 else call.outputs()
    args = {**call.operands(), **results, "keys_per_group": keys_per_group, **call.geometry()}
    group = tile.feature_lanes * tile.key_lanes
    items = (splits * group, s.count)
    attend = runtime.launch("attention/decode", definitions, args, items, (group, 1))
    if splits == 1:
        return attend
    rows = s.count * s.t
    combine = runtime.launch(
        "attention/decode_reduce",
        {"OUT_DTYPE": call.out_dtype.name, "REAL": call.real},
        {"partial": partial, **call.outputs(), "rows": rows, "e": s.e, "splits": splits},
        (s.e, rows),
        (1 if runtime.features.cpu else _REDUCE_GROUP, 1),
    )
    partial_bytes = rows * splits * (s.e + _PARTIAL_STATISTICS) * call.itemsize
    return LaunchSequence((attend, combine), (partial_bytes,))
