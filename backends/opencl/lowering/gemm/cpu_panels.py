"""Matrix products on CPUs: blocks of the result, each by one work-item that packs what it needs for register tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Argument, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.lowering.support.prefetch import ahead
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Launch

_DEPTH = 128
"""Most terms per pass: a panel of the right operand then stays in the first-level cache, beside rows of the left one."""
_LOCAL_BLOCK = 594 << 10
"""Bytes for a block of the left operand, a part of the second-level cache, where local memory is larger."""
_PRIVATE_BLOCK = 324 << 10
"""Bytes for it otherwise: private memory is a part of a thread's stack."""
_WIDE = 16
"""Floats per vector from which on the register file has 32 vectors: AVX-512. Others are taken to have 16."""
_MOST_ROWS_IN_PLACE = 8
"""In a tile whose rows are read where they lie: each takes a register for its address."""
_MOST_PANELS_IN_PLACE = 16
"""As often a block's left operand is read again where it lies; beyond, a copy of it is worth its time."""
_PAGE = 4096
"""Bytes. Lines of an operand that are a multiple of this apart compete for the same few places of a cache."""
_COPIED_COST, _IN_PLACE_COST, _PACKED_COST = 1.0, 0.7, 1.5
"""Time to copy an element of the left operand, to read it for the first time, and to pack one of the right operand, in
multiplications of a vector."""
_BLOCK_COST = 4000
"""Time to start a block, in the same unit."""
_BLOCKS_PER_UNIT = 4


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Rows, and columns as vectors of `width`, that the sums of a CPU's register tile cover."""

    rows: int
    vectors: int
    width: int

    @property
    def columns(self) -> int:
        return self.vectors * self.width


PANELS = Family[RegisterTile](
    "matmul_panels",
    {"rows": (4, 6, 8, 12, 14), "vectors": (1, 2, 3, 4)},
    # Sums, a row of the right operand and one element of the left stay in registers.
    lambda features, tile: (tile.rows + 1) * tile.vectors + 1 <= (32 if features.vector_width >= _WIDE else 16),
)


_TILES = {(6, 4): 1.0, (8, 3): 1.02, (12, 2): 1.06, (4, 4): 1.1, (12, 1): 1.2}
"""Rows and vectors of tiles for 32 registers, and their time per multiplication. (6, 4) loads least for what it multiplies."""


def register_tile(runtime: Runtime, itemsize: int, m: int, n: int) -> RegisterTile:
    """The tile for `m` rows and `n` columns of sums of that size: the fastest one with regard to what is computed in vain."""
    width = runtime.features.vector_width
    wide = width >= _WIDE
    if itemsize > 4:
        width //= 2
    rows, vectors = (
        min(_TILES, key=lambda t: round_up(m, t[0]) * round_up(n, t[1] * width) * _TILES[t]) if wide else (4, 3)
    )
    shapes = f"{size_class(m)} by {size_class(n)} of {itemsize} bytes"
    return runtime.tuning.choose(PANELS, shapes, RegisterTile(rows, vectors, width))


def adds_rows(p: Product) -> bool:
    """Whether the kernel can also add up the rows of the left operand: neighbours lie down its columns, and sums can wait."""
    return p.left.row == 1 != p.left.column and p.sum_dtype is p.out_dtype


def build(runtime: Runtime, p: Product) -> Launch:
    item = p.sum_dtype.itemsize
    tile = register_tile(runtime, item, p.m, p.n)
    by_rows = p.left.column == 1 or p.left.row != 1
    # Between passes, the workspace holds sums that the type of the result cannot hold.
    sums = p.count * p.m * p.n * item if p.k > _DEPTH and p.sum_dtype is not p.out_dtype else 0
    finishing, finishing_args = epilogue(p)
    in_local = runtime.features.local_memory > _LOCAL_BLOCK
    # Whole tiles and whole vectors are copied together, to lines that are a vector longer than the terms; one slab is spare.
    slab = math.lcm(tile.rows, tile.width)
    rows = ((_LOCAL_BLOCK if in_local else _PRIVATE_BLOCK) // ((_DEPTH + tile.width) * item) // slab - 1) * slab
    copied = not _readable_in_place(p, tile)
    down, across = _blocks(runtime, p, tile, rows, _COPIED_COST if copied else _IN_PLACE_COST)
    copied |= ceil_div(p.n, tile.columns * across) > _MOST_PANELS_IN_PLACE
    defined = definitions(
        p, finishing, REAL_DTYPE=p.sum_dtype.name, WIDTH=tile.width, MR=tile.rows, VECTORS=tile.vectors, DEPTH=_DEPTH,
        SLAB=slab, BLOCK_ROWS=rows, BY_ROWS=by_rows, COPIED=copied, IN_LOCAL=copied and in_local, SPLIT=bool(sums),
        ROW_SUMS=p.row_sums is not None, PREFETCH_DISTANCE=ahead(runtime),
    )  # fmt: skip
    args: dict[str, Argument] = {
        **geometry(p), **finishing_args, "out": Tensor(p.out.place), "blocks_down": down, "blocks_across": across,
    }  # fmt: skip
    if sums:
        args["partial"] = Workspace(p.workspace)
    if p.row_sums is not None:
        args["row_sums"] = Tensor(p.row_sums)
    return runtime.launch(
        "matmul_panels", "gemm/cpu_panels", defined,
        args,
        (down, across, p.count), (1, 1, 1), workspace=(sums,) if sums else (),
    )  # fmt: skip


def _readable_in_place(p: Product, tile: RegisterTile) -> bool:
    """Whether the left operand has the type of the sums, and lines of neighbours at distances that suit a cache."""
    if p.dtype is not p.sum_dtype or tile.rows > _MOST_ROWS_IN_PLACE or 1 not in (p.left.row, p.left.column):
        return False
    apart = p.left.row if p.left.column == 1 else p.left.column
    return apart * p.dtype.itemsize % _PAGE != 0


def _blocks(runtime: Runtime, p: Product, tile: RegisterTile, most_rows: int, row_cost: float) -> tuple[int, int]:
    """Into how many blocks the rows and the columns are divided: for the shortest time on all cores.

    More blocks balance the cores better, and pack operands more often.
    """
    units = runtime.features.compute_units
    tiles_down, tiles_across = ceil_div(p.m, tile.rows), ceil_div(p.n, tile.columns)
    least = ceil_div(tiles_down * tile.rows, most_rows)
    most = max(1, ceil_div(_BLOCKS_PER_UNIT * units, p.count))

    def time(blocks: tuple[int, int]) -> float:
        down, across = ceil_div(tiles_down, blocks[0]), ceil_div(tiles_across, blocks[1])
        products = down * tile.rows * across * tile.vectors
        packing = row_cost * down * tile.rows + _PACKED_COST * across * tile.columns
        rounds = ceil_div(p.count * math.prod(blocks), units)
        return rounds * (p.k * (products + packing) + _BLOCK_COST)

    downs = range(least, max(least, min(tiles_down, least * most)) + 1)
    return min(((d, a) for d in downs for a in range(1, min(tiles_across, most) + 1)), key=time)
