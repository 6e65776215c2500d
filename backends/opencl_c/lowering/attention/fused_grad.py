"""All gradients of attention in one pass on Hopper, which adds the gradients of queries in no fixed order."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.problems.attention import mask_kind
from polyhal.backends.opencl_c.lowering.attention import bulk_tiles
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall
from polyhal.backends.opencl_c.lowering.attention.delta import delta, statistics_bytes
from polyhal.backends.opencl_c.lowering.attention.mask_bits import packed
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Launch

_KEYS, _WARPGROUPS = 128, 2
"""Keys of a group, and its warpgroups that multiply."""
_GROUP = 256
"""Work-items that scale and round a tile of gradients of queries."""
_MAPS = 4
"""Operands that the copy engine reads."""
_SUMS = 2 * 64 * 64
"""Sums of a tile of queries (SUMS_OF_TILE of attention/dq_sums.h)."""


@dataclass(frozen=True, slots=True)
class FusedTile:
    """A group of 128 keys, which loops over blocks of `columns` queries."""

    columns: int
    stages: int = 2
    """Blocks of queries in local memory at once."""


def choose(runtime: Runtime, call: AttentionCall) -> FusedTile | None:
    """Return the tile for a call; None if another kernel is used."""
    s = call.shape
    if mask_kind(call.mask) == 2 or call.head_size > 128 or s.d <= 64 < s.e or not bulk_tiles.suits(runtime, call):
        return None
    enough = ceil_div(s.s, _KEYS) * s.count >= runtime.features.compute_units
    # The warpgroups divide 128 queries, or 128 features.
    return FusedTile(128 if s.d <= 64 else 64) if enough else None


def backward(runtime: Runtime, call: AttentionCall, tile: FusedTile) -> Launch:
    """Build launches for delta, the packed mask, sums of zero, all gradients, and the rounded gradient of queries."""
    statistics = Workspace(call.first_workspace)
    steps = [delta(runtime, call, statistics)]
    bits = packed(runtime, call, tile.columns, call.first_workspace + 1, rows_are_keys=True)
    at = call.first_workspace + 1 + len(bits.workspace)
    call, s = bits.call, call.shape
    sums = s.count * ceil_div(s.t, tile.columns) * _SUMS
    steps += [*bits.launches, copy.fill_workspace(runtime, contiguous(dtypes.float32, (sums,)), at)]
    hidden = [key - s.s + s.t if call.causal else 0 for key in range(0, s.s, _KEYS)]
    fused, maps = bulk_tiles.launch(
        runtime,
        "attention/fused_grad",
        call,
        {"COLUMNS": tile.columns, "STAGES": tile.stages},
        {
            "statistics": statistics,
            "dq_sums": Workspace(at),
            "dk": call.gradient("dk"),
            "dv": call.gradient("dv"),
        },
        warpgroups=_WARPGROUPS,
        work=[ceil_div(s.t, tile.columns) - max(0, n) // tile.columns for n in hidden],
        shared_bytes=call.dtype.itemsize * s.t * (s.d + s.e),
        maps=_MAPS,
        at=at + 1,
    )
    units = runtime.features.tensor_cores
    rounded = runtime.launch(
        "attention/fused_grad_queries",
        call.definitions(COLUMNS=tile.columns, PAIRS=call.results_aligned(2), TENSOR_CORES=units),
        {"dq_sums": Workspace(at), "dq": call.gradient("dq"), **call.geometry()},
        (ceil_div(s.t, tile.columns) * _GROUP, s.count),
        (_GROUP, 1),
        target=EXTENDED_HOPPER if units else None,
    )
    return LaunchSequence((*steps, fused, rounded), (statistics_bytes(call), *bits.workspace, 4 * sums, maps))
