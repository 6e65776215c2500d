"""How GPUs make the tiles of a convolution: shapes, depths, and what multiplies. What tuning may change is all here."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

Definitions = dict[str, str | int | bool]

FEW_ROWS = 32
"""Rows of the smallest tile."""
_SPLIT_TERMS = 128
"""Terms below which a tile's are not divided."""
_LEAST_SHARE = 512
"""Terms of a share below which adding up shares costs more than it saves, on Hopper's tensor cores."""
_MAX_SPLITS = 128
_WAVES = 4
"""Groups per compute unit that the terms of too few tiles are shared out to."""


@dataclass(frozen=True, slots=True)
class Method:
    """How a tile is made (conv/tile_accumulate.h): 32 work-items make 32 * `row_blocks` by 32 * `column_blocks` of it."""

    rows: int
    columns: int
    row_blocks: int
    column_blocks: int
    depth: int = 8
    stages: int = 2
    parts: int = 0
    """Half-precision numbers that stand for one operand on tensor cores; 0 where numbers are multiplied as they are."""
    tensor_cores: bool = False
    asynchronous: bool = False

    @property
    def group(self) -> int:
        return self.rows * self.columns // (32 * self.row_blocks * self.column_blocks)

    def definitions(self, dtype: DType, out: DType) -> Definitions:
        return {
            "DTYPE": dtype.name, "OUT_DTYPE": out.name, "REAL": real_type(out), "ROWS": self.rows, "COLUMNS": self.columns,
            "ROW_BLOCKS": self.row_blocks, "COLUMN_BLOCKS": self.column_blocks, "DEPTH": self.depth,
            "STAGES": self.stages, "PARTS": self.parts, "HALF_TYPE": half_type(dtype),
            "TENSOR_CORES": self.tensor_cores, "ASYNC_COPIES": self.asynchronous,
        }  # fmt: skip


def choose(runtime: Runtime, rows: int, dtype: DType, out: DType, precision: str, gradient: bool) -> Method:
    """The method for a product with so many rows; `gradient` is the weight's, where both operands are read as they lie.

    The shapes are those that were fastest on an H200. More rows reuse windows more, but leave fewer work-items per group to
    hide that copies of single words are slow, which only pays where both operands are copied so.
    """
    cores = runtime.features.tensor_cores and real_type(out) == "float"
    if rows <= FEW_ROWS:
        shape = (32, 128, 1, 1)
    elif gradient and rows > 64 and real_type(out) == "float":
        shape = (128, 128, 2, 2 if cores else 1)
    else:
        shape = (64, 128, 2, 1)
    if not cores:
        return Method(*shape)
    asynchronous = dtype is dtypes.float32
    parts = 1 if dtype.itemsize == 2 else {"highest": 0, "high": 3, "medium": 1}[precision]
    stages = 2 if not asynchronous else 3 if gradient or parts < 3 else 4
    return Method(*shape, 16, stages, parts, parts > 0, asynchronous)


@dataclass(frozen=True, slots=True)
class Teams:
    """A tile of conv/wgmma_tile.h, and how fast it is made, compared with the others of its list."""

    teams: int
    columns: int
    depth: int
    stages: int
    parts: int
    speed: float

    @property
    def rows(self) -> int:
        return 64 * self.teams

    @property
    def items(self) -> int:
        return 128 * self.teams

    @property
    def local_memory(self) -> int:
        return self.stages * self.parts * (self.rows + self.columns) * self.depth * 2

    @property
    def definitions(self) -> Definitions:
        return {"WARPGROUPS": self.teams, "WIDE": self.columns, "DEPTH": self.depth, "STAGES": self.stages}


TEAMS = {
    1: (Teams(2, 128, 64, 3, 1, 1.0), Teams(2, 128, 64, 5, 1, 0.95), Teams(2, 64, 64, 4, 1, 0.9)),
    3: (Teams(3, 128, 32, 3, 3, 1.0), Teams(2, 128, 32, 4, 3, 1.1), Teams(2, 64, 32, 3, 3, 0.84)),
}
"""By the number of parts."""
_SHARE_COST = {1: 2.5, 3: 1.0}
"""What a sum of a share costs, in multiplications of so many parts."""


def choose_teams(
    runtime: Runtime, parts: int, shape: tuple[int, int, int, int], *, divisible: bool = True
) -> tuple[Teams, int, int]:
    """The tile that finishes (rows, columns, terms, groups) first, how many groups share it, and the terms of each."""
    rows, columns, terms, groups = shape
    units, memory = runtime.features.compute_units, runtime.features.static_local_memory
    found = []
    for tile in TEAMS[parts]:
        resident = max(1, memory // tile.local_memory)
        tiles = ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns) * groups
        workers = units * resident if divisible else 0
        split = split_k(terms, tiles, workers, _MAX_SPLITS, min_terms=_LEAST_SHARE, multiple=tile.depth)
        splits, share = split.splits, split.terms
        waves = ceil_div(tiles * splits, units * resident)
        time = waves * resident * tile.rows * tile.columns * share / tile.speed
        if splits > 1:
            time += _SHARE_COST[parts] * splits * rows * columns * groups
        found.append((time, tile, splits, share))
    _, tile, splits, share = min(found, key=lambda f: f[0])
    return tile, splits, share


def half_type(dtype: DType) -> str:
    """In what tensor cores multiply numbers of this dtype."""
    return "float16" if dtype is dtypes.float16 else "bfloat16"


def share_out(runtime: Runtime, method: Method, tiles: int, terms: int) -> tuple[int, int]:
    """How many groups share out the terms of a tile, and how many terms each takes."""
    units = runtime.features.compute_units
    workers = _WAVES * units if tiles < units else 0
    split = split_k(terms, tiles, workers, _MAX_SPLITS, min_terms=_SPLIT_TERMS, multiple=method.depth)
    return split.splits, split.terms
