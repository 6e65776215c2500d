"""Forward pass on Hopper by warpgroups that take turns at the tensor cores, with operands copied by the copy engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.opencl_c.lowering.attention import bulk_tiles
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall
from polyhal.backends.opencl_c.lowering.attention.mask_bits import packed
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_ROWS = 64
"""Queries of a warpgroup."""
_SPLIT_SIZES = 128
"""Largest head size whose other kernel on Hopper divides the keys among groups where there are few queries."""
_MAPS = 3
"""Operands that the copy engine reads."""


@dataclass(frozen=True, slots=True)
class PingPongTile:
    """A group of `warpgroups` that multiply, 64 queries each, which loops over blocks of `columns` keys."""

    warpgroups: int
    columns: int
    stages: int = 2
    """Blocks of keys, and of values, in local memory at once."""

    @property
    def rows(self) -> int:
        return _ROWS * self.warpgroups

    def local_memory(self, call: AttentionCall) -> int:
        """Return the bytes of all queries, and of the keys and values of every stage."""
        qk, v = bulk_tiles.row_bytes(call.shape.d), bulk_tiles.row_bytes(call.shape.e)
        return self.rows * qk + self.stages * self.columns * (qk + v)


TILES = {64: PingPongTile(3, 128), 128: PingPongTile(2, 128), 256: PingPongTile(2, 64)}
"""Tiles by the largest head size."""
SMALL_TILE = PingPongTile(1, 64)
"""Tile for calls whose tiles of one warpgroup run at the same time."""


def choose(runtime: Runtime, call: AttentionCall) -> PingPongTile | None:
    """Return the tile for a call; None if another kernel is used."""
    if not bulk_tiles.suits(runtime, call):
        return None
    units = runtime.features.compute_units
    small = ceil_div(call.shape.t, SMALL_TILE.rows) * call.shape.count
    if 2 * small <= units and call.head_size <= _SPLIT_SIZES:
        return None
    tile = SMALL_TILE if small <= units else next(t for limit, t in TILES.items() if call.head_size <= limit)
    return tile if tile.local_memory(call) <= runtime.features.static_local_memory else None


def forward(runtime: Runtime, call: AttentionCall, tile: PingPongTile) -> Launch:
    """Build the launch that packs a boolean mask, and one for the output and the logsumexp."""
    bits = packed(runtime, call, tile.columns, call.first_workspace)
    call = replace(bits.call, copies=call.copies + len(bits.workspace))
    s = call.shape
    keys = [min(first + tile.rows, s.t) + s.s - s.t if call.causal else s.s for first in range(0, s.t, tile.rows)]
    launch, maps = bulk_tiles.launch(
        runtime,
        "attention/ping_pong",
        call,
        {"COLUMNS": tile.columns, "STAGES": tile.stages},
        call.outputs(),
        warpgroups=tile.warpgroups,
        work=[max(1, ceil_div(min(n, s.s), tile.columns)) for n in reversed(keys)],
        shared_bytes=call.dtype.itemsize * s.s * (s.d + s.e),
        sharing=s.batch[2] if s.batch_strides[1][2] == 0 else 1,
        maps=_MAPS,
        at=call.first_workspace,
    )
    return LaunchSequence((*bits.launches, launch), (*bits.workspace, maps))
