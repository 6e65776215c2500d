"""Matrix products on CPUs: a work-item computes a block of the result from packed panels, in register tiles (after BLIS).

Source: Van Zee and van de Geijn, 2015, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Argument, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Launch

_WIDE_TERMS, _NARROW_TERMS = 128, 256
"""Maximum terms per pass, with 32 and 16 registers: a panel of b and rows of a then stay in the first-level cache."""
_LOCAL_BLOCK = 594 << 10
"""Bytes of a packed block of a if local memory can hold it: a part of the second-level cache."""
_PRIVATE_BLOCK = 324 << 10
"""Bytes of a packed block of a in private memory, which is on a thread's stack."""
_AVX512_WIDTH = 16
"""Minimum floats per vector of processors with 32 vector registers, as with AVX-512; others have 16."""
_MAX_ROWS_UNPACKED = 8
"""Maximum rows of a tile that reads a in place: each row takes a register for its address."""
_MAX_PANELS_UNPACKED = 16
"""Maximum panels for which re-reading a block of a in place is faster than packing it."""
_PAGE = 4096
"""Distance in bytes whose multiples map lines to the same set of a cache."""
_PACK_A_COST, _READ_A_COST, _PACK_B_COST = 1.0, 0.7, 1.5
"""Time to pack an element of a, to read it for the first time, and to pack one of b, in multiply-adds of a vector."""
_BLOCK_COST = 4000
"""Time to start a block, in multiply-adds of a vector."""
_BLOCKS_PER_UNIT = 4
"""Maximum blocks per compute unit: more balance the load better, but pack operands more often."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A register tile (micro-tile): MR rows by NR columns of sums, with columns in vectors of `width`."""

    rows: int
    vectors: int
    width: int

    @property
    def columns(self) -> int:
        return self.vectors * self.width


PANELS = Family[RegisterTile](
    "matmul_panels",
    {"rows": (4, 6, 8, 12, 14), "vectors": (1, 2, 3, 4)},
    # The sums, a row of the panel of b and one element of a stay in registers.
    lambda features, tile: (tile.rows + 1) * tile.vectors + 1 <= (32 if features.vector_width >= _AVX512_WIDTH else 16),
)


_WIDE_TILES = {(6, 4): 1.0, (8, 3): 1.02, (8, 2): 1.04, (12, 2): 1.06, (4, 4): 1.1, (12, 1): 1.2}
"""Relative time per multiply-add of tiles (rows, vectors) for 32 registers; (6, 4) has the fewest loads."""
_NARROW_TILES = {(4, 3): 1.0}
"""Relative time per multiply-add of tiles (rows, vectors) for 16 registers."""


def register_tile(runtime: Runtime, itemsize: int, m: int, n: int) -> RegisterTile:
    """Return the fastest tile for m x n sums of `itemsize` bytes, including the cost of padding at the edges."""
    _, (rows, vectors), width = _fastest(runtime, itemsize, m, n)
    shapes = f"{size_class(m)} by {size_class(n)} of {itemsize} bytes"
    return runtime.tuning.choose(PANELS, shapes, RegisterTile(rows, vectors, width))


def tile_time(runtime: Runtime, itemsize: int, m: int, n: int) -> float:
    """Return the time of m x n sums in the fastest tile, in sums of an ideal tile without padding."""
    return _fastest(runtime, itemsize, m, n)[0]


def _fastest(runtime: Runtime, itemsize: int, m: int, n: int) -> tuple[float, tuple[int, int], int]:
    """Return the fastest tile's time, its rows and vectors, and the width of its vectors."""
    width = runtime.features.vector_width
    tiles = _WIDE_TILES if width >= _AVX512_WIDTH else _NARROW_TILES
    if itemsize > 4:
        width //= 2
    time, tile = min(
        (round_up(m, rows) * round_up(n, vectors * width) * cost, (rows, vectors))
        for (rows, vectors), cost in tiles.items()
    )
    return time, tile, width


def supports_row_sums(p: Product) -> bool:
    """Return whether the kernel can also sum rows of a: its columns are contiguous and the output can hold sums."""
    return p.left.row == 1 != p.left.column and p.sum_dtype is p.out_dtype


def build(
    runtime: Runtime,
    p: Product,
    *,
    a: Tensor | Workspace | None = None,
    b: Tensor | Workspace | None = None,
    out: Tensor | Workspace | None = None,
) -> Launch:
    """Build the launch for a product; `a`, `b` and `out`, if present, replace its memory. Raises KernelBuildError."""
    itemsize = p.sum_dtype.itemsize
    tile = register_tile(runtime, itemsize, p.m, p.n)
    terms = _WIDE_TERMS if runtime.features.vector_width >= _AVX512_WIDTH else _NARROW_TERMS
    row_major = p.left.column == 1 or p.left.row != 1
    # Between passes a workspace holds sums whose type is wider than the output's.
    partial_bytes = p.count * p.m * p.n * itemsize if p.k > terms and p.sum_dtype is not p.out_dtype else 0
    macros, epilogue_args = epilogue(p)
    in_local = runtime.features.local_memory > _LOCAL_BLOCK
    # Slabs are whole tiles and whole vectors. Packed lines exceed the terms by a vector, and one slab is padding.
    slab = math.lcm(tile.rows, tile.width)
    block_bytes = _LOCAL_BLOCK if in_local else _PRIVATE_BLOCK
    max_rows = (block_bytes // ((terms + tile.width) * itemsize) // slab - 1) * slab
    pack = not _readable_in_place(p, tile)
    down, across = _blocks(runtime, p, tile, max_rows, _PACK_A_COST if pack else _READ_A_COST)
    pack |= ceil_div(p.n, tile.columns * across) > _MAX_PANELS_UNPACKED
    defined = definitions(
        p,
        macros,
        REAL_DTYPE=p.sum_dtype.name,
        WIDTH=tile.width,
        MR=tile.rows,
        VECTORS=tile.vectors,
        KC=terms,
        SLAB=slab,
        MC=max_rows,
        A_ROW_MAJOR=row_major,
        PACK_A=pack,
        PACK_IN_LOCAL=pack and in_local,
        PARTIAL_IN_WORKSPACE=bool(partial_bytes),
        ROW_SUMS=p.row_sums is not None,
        PREFETCH_DISTANCE=prefetch_distance(runtime),
    )
    args: dict[str, Argument] = {
        **geometry(p, a, b),
        **epilogue_args,
        "out": out or Tensor(p.out.place),
        "blocks_down": down,
        "blocks_across": across,
    }
    if partial_bytes:
        args["partial"] = Workspace(p.workspace)
    if p.row_sums is not None:
        args["row_sums"] = Tensor(p.row_sums)
    workspace = (partial_bytes,) if partial_bytes else ()
    return runtime.launch("gemm/cpu_panels", defined, args, (down, across, p.count), (1, 1, 1), workspace=workspace)


def _readable_in_place(p: Product, tile: RegisterTile) -> bool:
    """Return whether a has the type of the sums, an axis of stride 1, and lines that map to different cache sets."""
    if p.dtype is not p.sum_dtype or tile.rows > _MAX_ROWS_UNPACKED or 1 not in (p.left.row, p.left.column):
        return False
    line_stride = p.left.row if p.left.column == 1 else p.left.column
    return line_stride * p.dtype.itemsize % _PAGE != 0


def _blocks(runtime: Runtime, p: Product, tile: RegisterTile, max_rows: int, row_cost: float) -> tuple[int, int]:
    """Return the numbers of blocks by rows and by columns with the least modelled time on all cores."""
    units = runtime.features.compute_units
    tiles_down, tiles_across = ceil_div(p.m, tile.rows), ceil_div(p.n, tile.columns)
    least = ceil_div(tiles_down * tile.rows, max_rows)
    most = max(1, ceil_div(_BLOCKS_PER_UNIT * units, p.count))

    def time(blocks: tuple[int, int]) -> float:
        down, across = ceil_div(tiles_down, blocks[0]), ceil_div(tiles_across, blocks[1])
        multiply = down * tile.rows * across * tile.vectors
        packing = row_cost * down * tile.rows + _PACK_B_COST * across * tile.columns
        rounds = ceil_div(p.count * math.prod(blocks), units)
        return rounds * (p.k * (multiply + packing) + _BLOCK_COST)

    downs = range(least, max(least, min(tiles_down, least * most)) + 1)
    return min(((d, a) for d in downs for a in range(1, min(tiles_across, most) + 1)), key=time)
