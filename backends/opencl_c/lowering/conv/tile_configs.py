"""Tunable parameters of convolutions on GPUs: tile shapes, and splits of a tile's k axis among groups."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.occupancy import Usage
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

Definitions = dict[str, str | int | bool]

MIN_ROWS = 32
"""Rows of the smallest tile."""
_MIN_SPLIT = 128
"""Minimum k range of a split."""
_MIN_WGMMA_SPLIT = 512
"""Minimum k range of a split on Hopper's tensor cores: reducing shorter splits costs more than they save."""
_MAX_SPLITS = 128
"""Maximum groups that share a tile."""
_OTHER_REGISTERS = 26
"""Registers for anything but sums, operands and elements in flight to local memory; fitted to AMD's compiler."""
_OTHER_MEMORY = 8
"""Bytes of local memory per column in addition to slices: the tap of the weight gradient."""
_PADDING = 4
"""Elements of padding per line in local memory, against bank conflicts."""
_GROUPS_PER_UNIT = 4
"""Target of split-K in groups per compute unit, if tiles are fewer than compute units."""


@dataclass(frozen=True, slots=True)
class TileConfig:
    """A tile of conv/tile_accumulate.h: 32 work-items compute `32 * row_blocks` by `4 * item_width * column_blocks`."""

    rows: int
    columns: int
    row_blocks: int
    column_blocks: int
    depth: int = 8
    """Length of a k-slice."""
    stages: int = 2
    """Slices in local memory at once (software pipeline)."""
    terms: int = 0
    """16-bit terms per element on tensor cores; 0 if elements are multiplied directly."""
    tensor_cores: bool = False
    asynchronous: bool = False
    """True if slices are copied asynchronously."""
    item_width: int = 8
    """Columns of a block that a work-item holds: 8 or 4."""

    @property
    def group(self) -> int:
        """Work-items."""
        return self.rows * self.columns // (4 * self.item_width * self.row_blocks * self.column_blocks)

    @property
    def usage(self) -> Usage:
        """Predicted resources of a group in float32, without complete unrolling of the loop over terms."""
        rows, columns = 4 * self.row_blocks, self.item_width * self.column_blocks
        loads = (self.rows + self.columns) * self.depth // self.group
        memory = self.stages * self.depth * (self.rows + self.columns + 2 * _PADDING) * 4 + _OTHER_MEMORY * self.columns
        return Usage(rows * columns + rows + columns + loads + _OTHER_REGISTERS, self.group, memory)

    def definitions(self, dtype: DType, out: DType) -> Definitions:
        return {
            "DTYPE": dtype.name,
            "OUT_DTYPE": out.name,
            "REAL": real_type(out),
            "ROWS": self.rows,
            "COLUMNS": self.columns,
            "ROW_BLOCKS": self.row_blocks,
            "COLUMN_BLOCKS": self.column_blocks,
            "DEPTH": self.depth,
            "STAGES": self.stages,
            "BF16_TERMS": self.terms,
            "HALF_TYPE": half_type(dtype),
            "TENSOR_CORES": self.tensor_cores,
            "ASYNC_COPIES": self.asynchronous,
            "ITEM_WIDTH": self.item_width,
        }


def choose_tile(runtime: Runtime, rows: int, dtype: DType, out: DType, precision: str, weight_grad: bool) -> TileConfig:
    """Return the tile for a product with `rows` rows. In the weight gradient both operands are read in place.

    The shapes were the fastest on an H200. More rows reuse windows more often, but leave fewer work-items per group to
    hide the latency of copying single words. They are faster only if both operands are copied in single words.
    """
    cores = runtime.features.tensor_cores and real_type(out) == "float"
    if rows <= MIN_ROWS:
        shape = (32, 128, 1, 1)
    elif weight_grad and rows > 64 and real_type(out) == "float":
        shape = (128, 128, 2, 2 if cores else 1)
    else:
        shape = (64, 128, 2, 1)
    if not cores:
        features = runtime.features
        narrow = TileConfig(*((32, 128) if weight_grad or rows <= MIN_ROWS else (64, 64)), 1, 1, item_width=4)
        candidates = [TileConfig(*shape), TileConfig(32, 128, 1, 1), narrow]
        return occupancy.choose(features.architecture, features.static_local_memory, candidates, lambda t: t.usage)
    asynchronous = dtype is dtypes.float32
    terms = 1 if dtype.itemsize == 2 else {"highest": 0, "high": 3, "medium": 1}[precision]
    stages = 2 if not asynchronous else 3 if weight_grad or terms < 3 else 4
    return TileConfig(*shape, 16, stages, terms, terms > 0, asynchronous)


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """A tile of conv/wgmma_tile.h."""

    warpgroups: int
    columns: int
    depth: int
    """Length of a k-slice."""
    stages: int
    """Slices in local memory at once (software pipeline)."""
    terms: int
    """Bfloat16 terms per element."""
    speed: float
    """Multiply-adds per unit of time, relative to the other tiles of its list."""

    @property
    def rows(self) -> int:
        return 64 * self.warpgroups

    @property
    def items(self) -> int:
        """Work-items per group."""
        return 128 * self.warpgroups

    @property
    def local_memory(self) -> int:
        """Bytes of local memory per group."""
        return self.stages * self.terms * (self.rows + self.columns) * self.depth * 2

    @property
    def definitions(self) -> Definitions:
        return {"WARPGROUPS": self.warpgroups, "WIDE": self.columns, "DEPTH": self.depth, "STAGES": self.stages}


WGMMA_TILES = {
    1: (
        WgmmaTile(4, 128, 64, 3, 1, 1.05),
        WgmmaTile(1, 128, 64, 4, 1, 1.0),
        WgmmaTile(2, 64, 64, 4, 1, 0.9),
        WgmmaTile(1, 64, 64, 4, 1, 0.85),
    ),
    3: (WgmmaTile(3, 128, 32, 3, 3, 1.0), WgmmaTile(2, 128, 32, 4, 3, 1.1), WgmmaTile(2, 64, 32, 3, 3, 0.84)),
}
"""Candidates by bfloat16 terms per element."""
_FIXED_TERMS = {1: 128, 3: 0}
"""Length of the k axis whose multiplication takes as long as the start and end of a tile, by bfloat16 terms per element."""
_REDUCE_COST = {1: 2.5, 3: 1.0}
"""Cost of reducing one split-K partial, in multiply-adds with that number of bfloat16 terms."""


def choose_wgmma_tile(
    runtime: Runtime, terms: int, shape: tuple[int, int, int, int], *, splittable: bool = True
) -> tuple[WgmmaTile, int, int]:
    """Return the fastest tile for a product (rows, columns, k, groups), its splits, and the k range per split."""
    rows, columns, k, groups = shape
    units, memory = runtime.features.compute_units, runtime.features.static_local_memory
    candidates = []
    for tile in WGMMA_TILES[terms]:
        resident = max(1, memory // tile.local_memory)
        tiles = ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns) * groups
        workers = units * resident if splittable else 0
        split = split_k(k, tiles, workers, _MAX_SPLITS, min_terms=_MIN_WGMMA_SPLIT, multiple=tile.depth)
        splits, k_per_split = split.splits, split.terms
        waves = ceil_div(tiles * splits, units * resident)
        time = waves * resident * tile.rows * tile.columns * (k_per_split + _FIXED_TERMS[terms]) / tile.speed
        if splits > 1:
            time += _REDUCE_COST[terms] * splits * rows * columns * groups
        candidates.append((time, tile, splits, k_per_split))
    _, tile, splits, k_per_split = min(candidates, key=lambda candidate: candidate[0])
    return tile, splits, k_per_split


def half_type(dtype: DType) -> str:
    """Return the type in which tensor cores multiply numbers of this dtype."""
    return "float16" if dtype is dtypes.float16 else "bfloat16"


def split_tile(runtime: Runtime, tile: TileConfig, tiles: int, k: int) -> tuple[int, int]:
    """Return the number of groups that share a tile, and the k range per group."""
    units = runtime.features.compute_units
    workers = _GROUPS_PER_UNIT * units if tiles < units else 0
    split = split_k(k, tiles, workers, _MAX_SPLITS, min_terms=_MIN_SPLIT, multiple=tile.depth)
    return split.splits, split.terms
