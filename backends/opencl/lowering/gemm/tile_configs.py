"""The tiles in which tensor cores make products, how fast they are, and which of them finishes a product first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.split_k import SplitK
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.capabilities import OpenCLFeatures
from polyhal.backends.opencl.lowering.gemm import split_k
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.kernels.tuning import Family, size_class

_LINE = 64
"""Terms of a strip of wgmma."""
_MOST_ITEMS = 512
_REGISTERS = 1 << 16
"""Of a compute unit."""
_OF_ITEM = 255
_BESIDE_SUMS = 110
"""Registers of a work-item that hold other things than sums."""


class Tile(Protocol):
    """The part of a result that a group makes."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def depth(self) -> int:
        """Terms per strip."""

    @property
    def items(self) -> int: ...

    @property
    def local_memory(self) -> int:
        """Bytes."""

    @property
    def constants(self) -> dict[str, int]:
        """What is defined for the kernel."""


T = TypeVar("T", bound=Tile)


@dataclass(frozen=True, slots=True)
class WarpTile:
    """A tile of gemm/mma.cl, of elements of so many bytes, of which each warp makes a part."""

    itemsize: int
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    depth: int
    stages: int

    @property
    def items(self) -> int:
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def local_memory(self) -> int:
        # The longer of what lines along terms and along places take, with the padding that keeps banks apart.
        size, depth = self.itemsize, self.depth
        return self.stages * sum(
            max(n * (depth * size + 16), depth * (n * size + 32)) for n in (self.rows, self.columns)
        )

    @property
    def constants(self) -> dict[str, int]:
        return {
            "TILE_ROWS": self.rows, "TILE_COLUMNS": self.columns, "WARP_ROWS": self.warp_rows,
            "WARP_COLUMNS": self.warp_columns, "DEPTH": self.depth, "STAGES": self.stages,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class TeamTile:
    """A tile of gemm/wgmma.cl, each of whose teams makes 64 rows, from operands in so many parts."""

    parts: int
    teams: int
    columns: int
    stages: int

    @property
    def rows(self) -> int:
        return 64 * self.teams

    @property
    def depth(self) -> int:
        return _LINE

    @property
    def items(self) -> int:
        return 128 * self.teams

    @property
    def local_memory(self) -> int:
        return self.stages * self.parts * (self.rows + self.columns) * _LINE * 2

    @property
    def constants(self) -> dict[str, int]:
        return {"WARPGROUPS": self.teams, "WIDE": self.columns, "STAGES": self.stages, "PARTS": self.parts}


def _warps_fit(features: OpenCLFeatures, tile: WarpTile) -> bool:
    whole = tile.rows % tile.warp_rows == 0 and tile.columns % tile.warp_columns == 0
    # Copies begin between the steps of a strip, 32 bytes of terms each: there are two at least.
    return whole and tile.depth * tile.itemsize >= 64 and _fits(features, tile)


def _teams_fit(features: OpenCLFeatures, tile: TeamTile) -> bool:
    # One strip is multiplied while the one before may still be, and one is copied.
    return tile.stages >= (3 if tile.parts == 1 else 2) and _fits(features, tile)


def _fits(features: OpenCLFeatures, tile: Tile) -> bool:
    sums = tile.rows * tile.columns // tile.items
    registers = min(sums + _BESIDE_SUMS, _OF_ITEM)
    return (
        tile.items <= _MOST_ITEMS
        and sums < 2 * _BESIDE_SUMS
        and registers * tile.items <= _REGISTERS
        and tile.local_memory <= features.static_local_memory
    )


WARPS = Family[WarpTile](
    "matmul_mma",
    {
        "rows": (64, 128, 256), "columns": (64, 128, 256), "warp_rows": (32, 64), "warp_columns": (32, 64),
        "depth": (16, 32, 64), "stages": (2, 3, 4),
    },
    _warps_fit,
)  # fmt: skip
TEAMS = Family[TeamTile](
    "matmul_wgmma", {"teams": (1, 2), "columns": (128, 256), "stages": (2, 3, 4, 5, 6, 8)}, _teams_fit
)

HALF_TILES = {
    WarpTile(2, 256, 128, 64, 64, 64, 3): 1560, WarpTile(2, 128, 128, 64, 64, 64, 3): 1330,
    WarpTile(2, 128, 128, 64, 64, 32, 4): 1170, WarpTile(2, 64, 64, 32, 32, 64, 3): 940,
}  # fmt: skip
"""With the multiplications that a compute unit does in a nanosecond, as an H200 does."""
ROUNDED_TILES = {
    WarpTile(4, 256, 128, 64, 64, 32, 3): 700, WarpTile(4, 128, 128, 64, 64, 32, 3): 600,
    WarpTile(4, 128, 128, 64, 64, 16, 4): 560, WarpTile(4, 128, 64, 64, 32, 32, 3): 500,
    WarpTile(4, 64, 64, 32, 32, 32, 3): 420,
}  # fmt: skip
SPLIT_TILES = {
    WarpTile(4, 128, 128, 64, 32, 32, 3): 210, WarpTile(4, 128, 64, 64, 32, 16, 4): 200,
    WarpTile(4, 64, 64, 32, 32, 16, 3): 150,
}  # fmt: skip
TEAM_TILES = {
    1: {TeamTile(1, 2, 256, 4): 2860, TeamTile(1, 2, 128, 6): 2480, TeamTile(1, 1, 128, 4): 1950},
    3: {TeamTile(3, 2, 128, 2): 400, TeamTile(3, 1, 128, 2): 300},
}
"""By the number of parts."""
_STORED = 14
"""Results that a compute unit finishes in a nanosecond, while its tensor cores wait."""
_LAUNCH = 5000
"""Nanoseconds that a second launch takes at least."""
_BANDWIDTH, _SHARE_OF_BANDWIDTH = 4000, 25
"""Bytes per nanosecond to and from memory: those of the device, and those of one compute unit."""
_ROUNDS = 8
"""So many shares in turn, at most, a compute unit takes for the units to have equally much to do."""


def count(tile: Tile, p: Product) -> int:
    """How many tiles cover the results."""
    return ceil_div(p.m, tile.rows) * ceil_div(p.n, tile.columns) * p.count


def resident(runtime: Runtime, tile: Tile) -> int:
    """Groups that a compute unit holds at once."""
    registers = tile.rows * tile.columns // tile.items + _BESIDE_SUMS
    # A unit has a little more local memory than one group may take. A group too many does no harm: it waits.
    by_memory = round(runtime.features.static_local_memory / tile.local_memory)
    return max(1, min(by_memory, _REGISTERS // (tile.items * registers)))


def choose(runtime: Runtime, p: Product, family: Family[T], tiles: Mapping[T, float]) -> tuple[T, SplitK]:
    """The tile, of those that the device can hold, and the shares of its terms, that finish first."""
    units = runtime.features.compute_units
    most = runtime.features.static_local_memory
    slowest = min(tiles.values())
    fitting = [t for t in tiles if t.local_memory <= most] or [min(tiles, key=lambda t: t.local_memory)]

    def time(tile: T, split: SplitK) -> float:
        works = count(tile, p) * split.splits
        size = tile.rows * tile.columns
        each = size * split.terms / tiles.get(tile, slowest)
        if split.splits == 1:
            return ceil_div(works, units) * (each + size / _STORED)
        sums = 4 * size
        return ceil_div(works, units) * (each + sums / _SHARE_OF_BANDWIDTH) + _LAUNCH + works * sums / _BANDWIDTH

    def best(tile: T) -> tuple[float, SplitK]:
        groups = (units * rounds for rounds in range(_ROUNDS + 1))
        splits = {split_k.choose(n, count(tile, p), p.k, tile.depth): None for n in groups}
        return min(((time(tile, s), s) for s in splits), key=lambda f: f[0])

    kind = f"{size_class(p.m, p.n, p.k)} of {p.dtype.name} at {p.precision}"
    tile = runtime.tuning.choose(family, kind, min(fitting, key=lambda t: best(t)[0]))
    return tile, best(tile)[1]
