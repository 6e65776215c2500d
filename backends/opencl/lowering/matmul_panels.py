"""Matrix products on CPUs: blocks of the result, each by one work-item that packs what it needs for register tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import Tensor, Workspace
from polyhal.backends.common.products import Product
from polyhal.backends.opencl.lowering.epilogue import epilogue
from polyhal.backends.opencl.lowering.matmul_arguments import definitions, operands, uints
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch
from polyhal.hal.tuning import Family, size_class

_DEPTH = 256
"""Most terms per pass: a panel of the right operand then stays in the first-level cache."""
_LOCAL_BLOCK = 594 << 10
"""Bytes for a block of the left operand, a part of the second-level cache, where local memory is larger."""
_PRIVATE_BLOCK = 297 << 10
"""Bytes for it otherwise: private memory is a part of a thread's stack."""
_SLACK = 128
"""Bytes past a block that packing may overwrite."""
_WIDE = 16
"""Floats per vector from which on the register file has 32 vectors: AVX-512. Others are taken to have 16."""
_PACK_ROW_COST, _PACK_COLUMN_COST = 3.0, 1.0
"""Time to pack an element of the left and of the right operand, which is fetched ahead, in multiplications of a vector."""
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


def register_tile(runtime: Runtime, itemsize: int, m: int, *, turned: bool) -> RegisterTile:
    """The tile for `m` rows of sums of that size: what fits the register file, with the fewest rows computed in vain.

    A left operand that is `turned` has neighbours down its columns; eight of them are packed at once.
    """
    width = runtime.features.vector_width
    wide = width >= _WIDE
    if itemsize > 4:
        width //= 2
    cost = {12: 1.05, 8: 1.0} if turned else {12: 1.0, 8: 1.05}
    rows = min(cost, key=lambda r: (round_up(m, r) * cost[r], r)) if wide else 4
    default = RegisterTile(rows, 2 if wide else 3, width)
    return runtime.tuning.choose(PANELS, f"{size_class(m)} of {itemsize} bytes{', turned' if turned else ''}", default)


def build(runtime: Runtime, p: Product) -> Launch:
    item = p.element.itemsize
    tile = register_tile(runtime, item, p.m, turned=p.left.column != 1 and p.left.row == 1)
    # Between passes, the workspace holds sums that the type of the result cannot hold.
    sums = p.count * p.m * p.n * item if p.k > _DEPTH and p.element is not p.out_dtype else 0
    finishing, finishing_parameters = epilogue(p)
    in_local = runtime.features.local_memory > _LOCAL_BLOCK + _SLACK
    rows = (_LOCAL_BLOCK if in_local else _PRIVATE_BLOCK) // (_DEPTH * item) // tile.rows * tile.rows
    down, across = _blocks(runtime, p, tile, rows)
    defined = definitions(
        p, finishing, REAL_DTYPE=p.element.name, WIDTH=tile.width, MR=tile.rows, VECTORS=tile.vectors, DEPTH=_DEPTH,
        BLOCK_ROWS=rows, IN_LOCAL=in_local, SPLIT=bool(sums),
    )  # fmt: skip
    return runtime.launch(
        "matmul_panels", "matmul_panels", defined,
        [
            Tensor(p.left.place), Tensor(p.right.place), *finishing_parameters,
            *([Workspace(p.temporary)] if sums else []), Tensor(p.out.place), *uints(p.m, p.n, p.k, down, across),
            *operands(p),
        ],
        (down, across, p.count), (1, 1, 1), workspace=(sums,) if sums else (),
    )  # fmt: skip


def _blocks(runtime: Runtime, p: Product, tile: RegisterTile, most_rows: int) -> tuple[int, int]:
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
        packing = _PACK_ROW_COST * down * tile.rows + _PACK_COLUMN_COST * across * tile.columns
        rounds = ceil_div(p.count * math.prod(blocks), units)
        return rounds * (p.k * (products + packing) + _BLOCK_COST)

    downs = range(least, max(least, min(tiles_down, least * most)) + 1)
    return min(((d, a) for d in downs for a in range(1, min(tiles_across, most) + 1)), key=time)
