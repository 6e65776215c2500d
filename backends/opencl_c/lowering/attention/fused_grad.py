"""All gradients of attention in one pass on Hopper, which adds the gradients of queries in no fixed order."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.problems.attention import mask_kind
from polyhal.backends.opencl_c.lowering.attention import bulk_tiles
from polyhal.backends.opencl_c.lowering.attention.call import Args, AttentionCall
from polyhal.backends.opencl_c.lowering.attention.delta import delta, statistics_bytes
from polyhal.backends.opencl_c.lowering.attention.mask_bits import packed
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_KEYS, _WARPGROUPS = 128, 2
"""Keys of a group, and its warpgroups that multiply."""
_MAPS = 4
"""Operands that the copy engine reads."""
_PANEL = 64
"""Queries and features of a panel of sums of gradients of queries (attention/dq_sums.h)."""
_LOCAL_MEMORY = 220 << 10
"""Bytes of local memory for operands. Hopper has 227 KiB for a group."""
_WIDE = 128
"""Largest head size for which one launch computes all gradients."""


@dataclass(frozen=True, slots=True)
class FusedTile:
    """A group of 128 keys, which loops over blocks of `columns` queries."""

    columns: int
    stages: int = 2
    """Blocks of queries in local memory at once."""
    wide: bool = False
    """True if gradients of values have a launch of their own."""

    def key_stages(self, call: AttentionCall) -> int:
        """Return the blocks of queries in local memory of the launch that computes gradients of keys."""
        row = bulk_tiles.row_bytes(call.shape.d) + bulk_tiles.row_bytes(call.shape.e)
        fixed = _KEYS * row + self.columns * _KEYS * call.dtype.itemsize
        return min(self.stages, (_LOCAL_MEMORY - fixed) // (self.columns * row)) if self.wide else self.stages


def choose(runtime: Runtime, call: AttentionCall) -> FusedTile | None:
    """Return the tile for a call; None if another kernel is used."""
    s = call.shape
    if mask_kind(call.mask) == 2 or not bulk_tiles.suits(runtime, call):
        return None
    if ceil_div(s.s, _KEYS) * s.count < runtime.features.compute_units:
        return None
    if call.head_size > _WIDE or s.d <= _PANEL < s.e:
        return FusedTile(_PANEL, wide=True)
    # The warpgroups divide 128 queries, or 128 features.
    return FusedTile(128 if s.d <= _PANEL else _PANEL)


def backward(runtime: Runtime, call: AttentionCall, tile: FusedTile) -> Launch:
    """Build launches for delta and sums of zero, the packed mask, all gradients, and the rounded gradient of queries."""
    statistics = Workspace(call.first_workspace)
    given = call
    bits = packed(runtime, call, tile.columns, call.first_workspace + 1, rows_are_keys=True)
    at = call.first_workspace + 1 + len(bits.workspace)
    call, s = bits.call, call.shape
    panels = ceil_div(s.d, _PANEL) if tile.wide else _WARPGROUPS
    sums = s.count * ceil_div(s.t, tile.columns) * panels * _PANEL * _PANEL
    steps = [delta(runtime, given, statistics, Workspace(at), sums), *bits.launches]
    hidden = [key - s.s + s.t if call.causal else 0 for key in range(0, s.s, _KEYS)]
    results: tuple[Args, ...] = (
        {"dq_sums": Workspace(at), "dk": call.gradient("dk")},
        {"dv": call.gradient("dv")},
    )
    workspace = [statistics_bytes(call), *bits.workspace, 4 * sums]
    for written in results if tile.wide else (results[0] | results[1],):
        launch, maps = bulk_tiles.launch(
            runtime,
            "attention/fused_grad",
            call,
            {
                "COLUMNS": tile.columns,
                "STAGES": tile.key_stages(call) if "dk" in written else tile.stages,
                "WIDE": tile.wide,
                "SUM_PANELS": panels,
                "WRITE_QK": "dk" in written,
                "WRITE_V": "dv" in written,
            },
            {"statistics": statistics, **written},
            warpgroups=_WARPGROUPS,
            work=[ceil_div(s.t, tile.columns) - max(0, n) // tile.columns for n in hidden],
            shared_bytes=call.dtype.itemsize * s.t * (s.d + s.e),
            maps=_MAPS,
            at=call.first_workspace + len(workspace),
        )
        steps.append(launch)
        workspace.append(maps)
    units = runtime.features.tensor_cores
    group = 128 * panels
    rounded = runtime.launch(
        "attention/fused_grad_queries",
        call.definitions(
            COLUMNS=tile.columns,
            SUM_PANELS=panels,
            PAIRS=call.results_aligned(2),
            OCTETS=call.results_aligned(8) and call.out_dtype.itemsize == 2,
            TENSOR_CORES=units,
        ),
        {"dq_sums": Workspace(at), "dq": call.gradient("dq"), **call.geometry()},
        (ceil_div(s.t, tile.columns) * group, s.count),
        (group, 1),
        target=EXTENDED_HOPPER if units else None,
    )
    return LaunchSequence((*steps, rounded), tuple(workspace))
