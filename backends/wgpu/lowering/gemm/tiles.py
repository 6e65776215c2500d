"""Matrix products on GPUs in tiles of workgroup memory. Kernel: shaders/wgsl/gemm/tiles.wgsl."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.gemm import split_k
from polyhal.backends.wgpu.lowering.gemm.arguments import LANES, arguments, definitions, layouts
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.backends.wgpu.shader import Definitions
from polyhal.hal.protocol import Launch


@dataclass(frozen=True, slots=True)
class Tile:
    """Template variables of lib/gemm_tiles.wgsl: 4 x 4 blocks per invocation, terms per k-tile, k-tiles in memory at once."""

    quad_rows: int = 2
    quad_columns: int = 2
    depth: int = 8
    stages: int = 2
    block_columns: int = 16

    @property
    def rows(self) -> int:
        return 64 * self.quad_rows

    @property
    def columns(self) -> int:
        return 64 * self.quad_columns

    def count(self, m: int, n: int) -> int:
        """Return the number of tiles that cover a matrix."""
        return ceil_div(m, self.rows) * ceil_div(n, self.columns)

    def memory(self, itemsize: int) -> int:
        """Return the bytes of workgroup memory for elements of `itemsize` bytes."""
        return self.stages * self.depth * LANES * (16 * (self.quad_rows + self.quad_columns) + 2) * itemsize

    def definitions(self) -> Definitions:
        return {
            "QUAD_ROWS": self.quad_rows,
            "QUAD_COLUMNS": self.quad_columns,
            "DEPTH": self.depth,
            "STAGES": self.stages,
            "BLOCK_COLUMNS": self.block_columns,
        }


_EFFICIENCY = {Tile(2, 2, 8): 1.0, Tile(1, 2, 16): 0.8, Tile(2, 1, 16): 0.8, Tile(1, 1, 16): 0.6}
"""Tiles, with their throughput relative to the largest tile if no part of them is wasted."""
_WIDE_ELEMENTS = Tile(1, 1, 8, 1)
"""Tile for elements of 8 bytes."""
_GROUP = 256
"""Invocations per workgroup of the kernels."""


def fit(runtime: Runtime) -> bool:
    """Return whether the device supports workgroups of the kernels' size, optional in WebGPU's compatibility mode."""
    return runtime.features.max_group_size >= _GROUP


def choose(runtime: Runtime, p: Product) -> Tile:
    """Choose the tile. Large tiles reuse more, unless they exceed the matrix or leave the device idle even with split-K."""
    itemsize = p.sum_dtype.itemsize
    if itemsize > 4:
        return _WIDE_ELEMENTS

    def cost(tile: Tile) -> float:
        groups = tile.count(p.m, p.n) * p.count
        occupancy = min(1.0, groups * max(1, p.k // split_k.MIN_TERMS) / split_k.BUSY_GROUPS)
        return groups * tile.rows * tile.columns / (_EFFICIENCY[tile] * occupancy)

    tile = min(_EFFICIENCY, key=cost)
    return tile if tile.memory(itemsize) <= runtime.features.local_memory else replace(tile, stages=1)


def multiply(runtime: Runtime, p: Product, tile: Tile) -> Launch:
    """Return the launch of a product with this tile."""
    groups = tile.count(p.m, p.n) * p.count
    split = split_k.choose(runtime, p, groups, blocks=False)
    variables = {**definitions(p, split=split.splits > 1), **tile.definitions(), **layouts(p)}
    args = arguments(p, split.terms, split=split.splits > 1)
    launch = runtime.launch("gemm/tiles", variables, args, groups * split.splits)
    return split_k.with_reduction(runtime, p, launch, split.splits)
