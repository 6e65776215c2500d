"""Tiles of products on tensor cores: resources, measured speeds, and a cost model that picks a tile and a split-K."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.split_k import SplitK
from polyhal.backends.common.problems.gemm import Addend, Product
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.gemm import split_k
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.core.kernels.tuning import Family, size_class

HALF_DTYPES = (dtypes.float16, dtypes.bfloat16)
"""Dtypes that tensor cores multiply directly."""
_WGMMA_DEPTH = 64
"""Terms of a k-tile of gemm/wgmma.cl."""
_MAX_SUMS, _MAX_SUMS_ALONE = 384, 256
"""Maximum columns times blocks of a warpgroup whose sums fit into registers: with those of the one that copies, and without."""
_MAX_ITEMS = 512
"""Maximum work-items per group."""
_UNIT_REGISTERS = 1 << 16
"""Registers of a compute unit."""
_ITEM_REGISTERS = 255
"""Maximum registers of a work-item."""
_OTHER_REGISTERS = 110
"""Registers of a work-item for anything but sums."""


class TensorCoreTile(Protocol):
    """An output tile that a group, or a cluster of groups, computes."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def groups(self) -> int:
        """Groups that compute the tile."""

    @property
    def depth(self) -> int:
        """Terms per k-tile."""

    @property
    def items(self) -> int:
        """Work-items of a group."""

    @property
    def local_memory(self) -> int:
        """Bytes of local memory of a group."""

    @property
    def turns(self) -> int:
        """1 if a group multiplies a tile while it stores another one."""

    @property
    def macros(self) -> dict[str, int]:
        """Definitions for the kernel."""


T = TypeVar("T", bound=TensorCoreTile)


@dataclass(frozen=True, slots=True)
class WarpTile:
    """A tile of gemm/mma.cl for elements of `itemsize` bytes; each warp computes warp_rows x warp_columns of it."""

    itemsize: int
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    depth: int
    stages: int

    @property
    def turns(self) -> int:
        return 0

    @property
    def groups(self) -> int:
        return 1

    @property
    def items(self) -> int:
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def local_memory(self) -> int:
        # The larger of a K-major and an MN-major k-tile, including padding against bank conflicts.
        size, depth = self.itemsize, self.depth
        return self.stages * sum(
            max(n * (depth * size + 16), depth * (n * size + 32)) for n in (self.rows, self.columns)
        )

    @property
    def macros(self) -> dict[str, int]:
        return {
            "TILE_ROWS": self.rows,
            "TILE_COLUMNS": self.columns,
            "WARP_ROWS": self.warp_rows,
            "WARP_COLUMNS": self.warp_columns,
            "DEPTH": self.depth,
            "STAGES": self.stages,
        }


@dataclass(frozen=True, slots=True)
class WarpgroupTile:
    """A tile of gemm/wgmma.cl for operands of `bf16_terms` 16-bit terms; each warpgroup computes 64 rows of it."""

    bf16_terms: int
    warpgroups: int
    columns: int
    stages: int

    @property
    def rows(self) -> int:
        return 64 * self.warpgroups

    @property
    def turns(self) -> int:
        return 0

    @property
    def groups(self) -> int:
        return 1

    @property
    def depth(self) -> int:
        return _WGMMA_DEPTH

    @property
    def items(self) -> int:
        return 128 * self.warpgroups

    @property
    def local_memory(self) -> int:
        return self.stages * self.bf16_terms * (self.rows + self.columns) * _WGMMA_DEPTH * 2

    @property
    def macros(self) -> dict[str, int]:
        return {
            "WARPGROUPS": self.warpgroups,
            "WIDE": self.columns,
            "STAGES": self.stages,
            "BF16_TERMS": self.bf16_terms,
        }


@dataclass(frozen=True, slots=True)
class ClusterTile:
    """A tile of gemm/wgmma_clusters.cl, for a cluster of `groups` groups, one below the other."""

    warpgroups: int
    """Warpgroups of a group that multiply; one more starts copies."""
    columns: int
    stages: int
    groups: int = 1
    blocks: int = 1
    """Blocks of 64 rows of a warpgroup."""
    turns: int = 0
    """1: the warpgroups compute different tiles, and one multiplies while the other one stores results."""

    @property
    def group_rows(self) -> int:
        """Rows of a group's tile."""
        return 64 * self.blocks * (1 if self.turns else self.warpgroups)

    @property
    def rows(self) -> int:
        return self.group_rows * self.groups

    @property
    def depth(self) -> int:
        return _WGMMA_DEPTH

    @property
    def items(self) -> int:
        return 128 * (self.warpgroups + 1)

    @property
    def local_memory(self) -> int:
        # Barriers, maps and row sums have up to 17 KiB of the 27 that Hopper has beyond `static_local_memory`.
        return self.stages * (self.group_rows + self.columns) * _WGMMA_DEPTH * 2

    @property
    def macros(self) -> dict[str, int]:
        return {
            "WARPGROUPS": self.warpgroups,
            "WIDE": self.columns,
            "STAGES": self.stages,
            "CLUSTER": self.groups,
            "BLOCKS": self.blocks,
            "TURNS": self.turns,
        }


def _warp_tile_fits(features: KernelFeatures, tile: WarpTile) -> bool:
    whole = tile.rows % tile.warp_rows == 0 and tile.columns % tile.warp_columns == 0
    # Copies are issued between the steps of a k-tile, of 32 bytes of terms each, so a k-tile needs at least two steps.
    return whole and tile.depth * tile.itemsize >= 64 and _fits(features, tile)


def _warpgroup_tile_fits(features: KernelFeatures, tile: WarpgroupTile) -> bool:
    # One k-tile is multiplied while another is copied; with one term, the previous one may also be in flight.
    return tile.stages >= (3 if tile.bf16_terms == 1 else 2) and _fits(features, tile)


def _cluster_tile_fits(features: KernelFeatures, tile: ClusterTile) -> bool:
    # One k-tile is multiplied, the previous one is released late, and at least one is copied. Copies have 64 columns or more.
    return (
        tile.stages >= 3
        and tile.columns % (64 * tile.groups) == 0
        and tile.blocks * tile.columns <= _MAX_SUMS
        and tile.turns < tile.warpgroups
        and tile.local_memory <= features.static_local_memory
    )


def _fits(features: KernelFeatures, tile: TensorCoreTile) -> bool:
    sums = tile.rows * tile.columns // tile.items
    registers = min(sums + _OTHER_REGISTERS, _ITEM_REGISTERS)
    return (
        tile.items <= _MAX_ITEMS
        and sums < 2 * _OTHER_REGISTERS
        and registers * tile.items <= _UNIT_REGISTERS
        and tile.local_memory <= features.static_local_memory
    )


MMA = Family[WarpTile](
    "matmul_mma",
    {
        "rows": (64, 128, 256),
        "columns": (64, 128, 256),
        "warp_rows": (32, 64),
        "warp_columns": (32, 64),
        "depth": (16, 32, 64),
        "stages": (2, 3, 4),
    },
    _warp_tile_fits,
)
WGMMA = Family[WarpgroupTile](
    "matmul_wgmma",
    {"warpgroups": (1, 2), "columns": (128, 256), "stages": (2, 3, 4, 5, 6, 8)},
    _warpgroup_tile_fits,
)
CLUSTERS = Family[ClusterTile](
    "matmul_clusters",
    {
        "warpgroups": (1, 2, 3),
        "columns": (64, 128, 192, 256),
        "stages": (3, 4, 5, 6, 8),
        "groups": (1, 2, 4),
        "blocks": (1, 2),
        "turns": (0, 1),
    },
    _cluster_tile_fits,
)

HALF_TILES = {
    WarpTile(2, 256, 128, 64, 64, 64, 3): 1560,
    WarpTile(2, 128, 128, 64, 64, 64, 3): 1330,
    WarpTile(2, 128, 128, 64, 64, 32, 4): 1170,
    WarpTile(2, 64, 64, 32, 32, 64, 3): 940,
}
"""Tiles for 16-bit operands, with the multiply-adds per nanosecond that a compute unit of an H200 reaches with each."""
TF32_TILES = {
    WarpTile(4, 256, 128, 64, 64, 32, 3): 700,
    WarpTile(4, 128, 128, 64, 64, 32, 3): 600,
    WarpTile(4, 128, 128, 64, 64, 16, 4): 560,
    WarpTile(4, 128, 64, 64, 32, 32, 3): 500,
    WarpTile(4, 64, 64, 32, 32, 32, 3): 420,
}
"""Tiles for float32 rounded to TF32, with their multiply-adds per nanosecond."""
TF32X3_TILES = {
    WarpTile(4, 128, 128, 64, 32, 32, 3): 210,
    WarpTile(4, 128, 64, 64, 32, 16, 4): 200,
    WarpTile(4, 64, 64, 32, 32, 16, 3): 150,
}
"""Tiles for float32 split into two TF32 terms, with their multiply-adds per nanosecond."""
WGMMA_TILES = {
    1: {WarpgroupTile(1, 2, 256, 4): 2860, WarpgroupTile(1, 2, 128, 6): 2480, WarpgroupTile(1, 1, 128, 4): 1950},
    3: {WarpgroupTile(3, 2, 128, 2): 400, WarpgroupTile(3, 1, 128, 2): 300},
}
"""Tiles for wgmma, with their multiply-adds per nanosecond, by the number of 16-bit terms per operand."""
CLUSTER_TILES = {
    ClusterTile(2, 256, 4): 3000,
    ClusterTile(2, 192, 5, blocks=2, turns=1): 2840,
    ClusterTile(2, 256, 5, turns=1): 2760,
    ClusterTile(2, 128, 6, blocks=2, turns=1): 2700,
    ClusterTile(3, 128, 4): 2700,
    ClusterTile(2, 192, 5): 2600,
    ClusterTile(2, 64, 8, blocks=2, turns=1): 2440,
    ClusterTile(2, 128, 8, turns=1): 2360,
    ClusterTile(1, 128, 8): 2340,
}
"""Tiles for wgmma with copies by the copy engine, with their multiply-adds per nanosecond and compute unit."""
_MAX_SUMS_WITH_TENSORS = 256
"""Maximum columns of all blocks of a warpgroup with which tensors of an epilogue are loaded without spilling registers."""
_STORE_BANDWIDTH = 36
"""Bytes of results, and of operands of the epilogue, per nanosecond and compute unit; measured on an H200."""
_LAUNCH_TIME = 3000
"""Minimum nanoseconds of a split-K's second launch."""
_BANDWIDTH, _UNIT_BANDWIDTH = 4000, 25
"""Bytes per nanosecond to and from memory: of the device, and of one compute unit."""
_MAX_ROUNDS = 8
"""Maximum partial tiles per compute unit in the candidates for a split-K; more of them balance the load better."""


def count(tile: TensorCoreTile, p: Product) -> int:
    """Return the number of tiles that cover the results."""
    return ceil_div(p.m, tile.rows) * ceil_div(p.n, tile.columns) * p.count


def resident(runtime: Runtime, tile: TensorCoreTile) -> int:
    """Return the number of groups that a compute unit holds at a time."""
    registers = tile.rows * tile.columns // tile.items + _OTHER_REGISTERS
    # A unit has slightly more local memory than a group may use. An estimate that is one group too high is harmless:
    # the group waits.
    by_memory = round(runtime.features.static_local_memory / tile.local_memory)
    return max(1, min(by_memory, _UNIT_REGISTERS // (tile.items * registers)))


def _runs_alone(tile: TensorCoreTile) -> bool:
    """Return whether a tile needs neither clusters nor registers that move between warpgroups: only CUDA has them."""
    return not isinstance(tile, ClusterTile) or (tile.groups == 1 and tile.blocks * tile.columns <= _MAX_SUMS_ALONE)


def _has_turns(tile: TensorCoreTile) -> bool:
    """Return whether warpgroups take turns or are three: row sums and moments of columns are for neither."""
    return isinstance(tile, ClusterTile) and (tile.turns == 1 or tile.warpgroups > 2)


def _loads_tensors(tile: TensorCoreTile) -> bool:
    """Return whether registers are left for tensors of an epilogue."""
    return not isinstance(tile, ClusterTile) or tile.blocks * tile.columns <= _MAX_SUMS_WITH_TENSORS


def _stored_bytes(p: Product) -> int:
    """Return the bytes that a result moves when it is stored, including the operands of the epilogue for each result."""
    merged = p.merged_epilogue()
    addends = [o for o in merged.operands if isinstance(o, Addend) and o.matrix.row] if merged else []
    return p.out_dtype.itemsize + sum(o.dtype.itemsize for o in addends)


def choose(
    runtime: Runtime, p: Product, family: Family[T], tiles: Mapping[T, float], *, turns: bool = True
) -> tuple[T, SplitK]:
    """Choose the tile and the split of the terms with the least modelled time among tiles that fit on the device.

    With `turns` False it is a tile whose two warpgroups, or only one, compute parts of it at the same time.
    """
    units = runtime.features.compute_units
    memory = runtime.features.static_local_memory
    slowest = min(tiles.values())
    possible = [t for t in tiles if (runtime.features.clusters or _runs_alone(t)) and (turns or not _has_turns(t))]
    fitting = [t for t in possible if t.local_memory <= memory] or [min(possible, key=lambda t: t.local_memory)]

    stored = _stored_bytes(p)
    if stored > p.out_dtype.itemsize:
        fitting = [t for t in fitting if _loads_tensors(t)] or fitting

    def time(tile: T, split: SplitK) -> float:
        if tile.turns and split.splits > 1:
            return math.inf  # groups have one tile each, and nothing is multiplied while it is stored
        work_tiles = count(tile, p) * split.splits
        rounds = ceil_div(work_tiles, units // tile.groups)
        size = tile.rows * tile.columns // tile.groups
        multiply = size * split.terms / tiles.get(tile, slowest)
        store = size * stored / _STORE_BANDWIDTH
        if split.splits == 1 and tile.turns:
            # One of two warpgroups stores, at half the rate, while the other one multiplies.
            return rounds * max(multiply, multiply / 2 + store) + store
        if split.splits == 1:
            return rounds * (multiply + store)
        nbytes = 4 * size
        partial = rounds * (multiply + nbytes / _UNIT_BANDWIDTH)
        return partial + _LAUNCH_TIME + work_tiles * tile.groups * nbytes / _BANDWIDTH

    def best(tile: T) -> tuple[float, SplitK]:
        groups = (units // tile.groups * rounds for rounds in range(_MAX_ROUNDS + 1))
        splits = {split_k.choose(n, count(tile, p), p.k, tile.depth): None for n in groups}
        return min(((time(tile, split), split) for split in splits), key=lambda timed: timed[0])

    kind = f"{size_class(p.m, p.n, p.k)} of {p.dtype.name} at {p.precision}"
    tile = runtime.tuning.choose(family, kind, min(fitting, key=lambda t: best(t)[0]))
    return tile, best(tile)[1]
