"""Launches of attention kernels whose operands Hopper's copy engine copies (shaders/opencl/attention/bulk_tiles.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Workspace
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall, Definitions
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER, HOPPER
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

_WARPGROUP, _WARPS = 128, 4
"""Work-items and warps of a warpgroup."""
_VECTOR = 8
"""Divisor of the strides of a tensor, in elements (16 bytes)."""
_MAP_BYTES = 128
"""Bytes of a tensor map."""
_PANEL_BYTES = 128
"""Bytes of a row of 64 features in local memory."""
_TILE_COST = 1
"""Time of a tile's start and end, in blocks that it loops over."""
_MAX_SECTION, _MAX_TILES = 64, 1 << 13
"""Maximum number of heads whose tiles follow one another, and of tiles for which schedules are compared."""
_CACHED_BYTES = 32 << 20
"""Bytes of operands that stay in the second-level cache."""
_SIZES = (64, 80, 96, 112, 128, 160, 192, 256)
"""Head sizes that kernels are compiled for."""


def suits(runtime: Runtime, call: AttentionCall) -> bool:
    """Return whether the copy engine can copy all operands."""
    features, s = runtime.features, call.shape
    if features.compute_capability != HOPPER or not features.tensor_cores or call.head_size > _SIZES[-1]:
        return False
    if call.dtype not in (dtypes.float16, dtypes.bfloat16) or call.scale <= 0 or not min(s.t, s.s, s.d, s.e):
        return False
    strides = zip(call.specs, s.batch_strides, strict=False)
    return call.aligned(_VECTOR) and all(o.strides[-2] > 0 and min(batch) >= 0 for o, batch in strides)


def padded(features: int) -> int:
    """Return the head size to compile for."""
    return next(n for n in _SIZES if features <= n)


def row_bytes(features: int) -> int:
    """Return the bytes of a row in local memory."""
    return ceil_div(features, 64) * _PANEL_BYTES


def balanced_section(work: Sequence[int], count: int, groups: int, limit: int) -> int:
    """Return the number of heads, at most `limit`, whose tiles follow one another, for which `groups` end at the same time.

    `work` are the blocks that each tile of a head loops over, in the order in which tiles are computed, and `count` is the
    number of heads. The schedule is FOR_TILES of attention/bulk_tiles.h.
    """
    costs = np.asarray(work, np.int64) + _TILE_COST
    count = min(count, max(1, _MAX_TILES // len(work)))

    def longest(section: int) -> int:
        parts = [np.tile(np.repeat(costs, section), count // section), np.repeat(costs, count % section)]
        tiles = np.concatenate(parts)
        rounds = np.pad(tiles, (0, -len(tiles) % groups)).reshape(-1, groups)
        rounds[1::2] = rounds[1::2, ::-1]
        return int(rounds.sum(0).max())

    return min(range(1, max(1, min(count, limit, _MAX_SECTION)) + 1), key=longest)


def launch(
    runtime: Runtime,
    kernel: str,
    call: AttentionCall,
    definitions: Definitions,
    args: Arguments,
    *,
    warpgroups: int,
    work: Sequence[int],
    shared_bytes: int,
    sharing: int = 1,
    maps: int,
    at: int,
) -> tuple[Launch, int]:
    """Build a launch of at most one group per compute unit, and return the bytes of workspace `at`, for its `maps`.

    `work` are the blocks that each tile of a head loops over. All tiles of `sharing` heads read the same `shared_bytes`.
    """
    units, count = runtime.features.tensor_cores, call.shape.count
    tiles = count * len(work)
    groups = min(tiles, runtime.features.compute_units)
    section = balanced_section(work, count, groups, _CACHED_BYTES // max(1, shared_bytes) * sharing)
    common: Definitions = {
        "FEATURES": padded(call.shape.d),
        "VALUES": padded(call.shape.e),
        "ALIGNED_ROWS": call.aligned(_VECTOR),
        "PAIRS": call.results_aligned(2),
        "TENSOR_CORES": units,
        "WARPS": _WARPS * warpgroups,
    }
    scheduled: Arguments = {
        **call.operands(),
        **call.geometry(),
        "maps": Workspace(at),
        "tiles": tiles,
        "section": section,
        "head_count": count,
    }
    # One more warpgroup starts copies; the portable fallback copies with all work-items.
    items = _WARPGROUP * (warpgroups + units)
    built = runtime.launch(
        kernel,
        call.definitions(**common, **definitions),
        {**scheduled, **args},
        (groups * items, 1, 1),
        (items, 1, 1),
        target=replace(EXTENDED_HOPPER, groups=1) if units else None,
    )
    return built, _MAP_BYTES * maps * groups
