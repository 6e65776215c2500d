"""Matrix products on CPUs: panels of the right operand are packed once, then register tiles sweep over them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common import products
from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.products import Product, padded
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import KernelLaunch, Parameter
from polyhal.backends.opencl.lowering.matmul_arguments import bias, definitions, longs, uints
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_DEPTH = 384
"""Terms per pass of the kernel: a panel of the left operand then stays in the first-level cache."""
_PACK_ROWS = 32
_BLOCK_PANELS = 8
_BLOCK_COLUMNS = 512


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Rows, and columns as vectors of `width`, that the sums of a CPU's register tile cover."""

    rows: int
    vectors: int
    width: int

    @property
    def columns(self) -> int:
        return self.vectors * self.width


def register_tile(runtime: Runtime, itemsize: int, m: int) -> RegisterTile:
    """The tile for `m` rows of sums of that size: what fits the register file, with the fewest rows computed in vain."""
    width = runtime.features.vector_width
    wide = width >= 16  # AVX-512 has 32 registers; others are taken to have 16
    if itemsize > 4:
        width //= 2
    if not wide:
        return RegisterTile(4, 3, width)
    rows = min((12, 8), key=lambda r: (round_up(m, r) * (1.0 if r == 12 else 1.05), r))
    return RegisterTile(rows, 2, width)


def build(runtime: Runtime, p: Product) -> Launch:
    tile = register_tile(runtime, p.element.itemsize, p.m)
    panels = ceil_div(p.n, tile.columns)
    # Each distinct right operand is packed once, however many batches share it.
    distinct = padded(tuple(n if s else 1 for n, s in zip(p.batch, p.right.batch, strict=True)), 1)
    steps = padded(tuple(_step(distinct, i) for i in range(products.BATCH_AXES)), 0)
    packed_bytes = math.prod(distinct) * panels * tile.columns * p.k * p.element.itemsize
    pack = runtime.launch(
        "matmul_pack", "matmul_pack",
        {"DTYPE": p.dtype.name, "REAL": type_name(p.kind), "NR": tile.columns, "ROWS": _PACK_ROWS},
        [
            Tensor(p.right.place), Workspace(p.temporary), *uints(p.n, p.k), *longs(p.right.row, p.right.column),
            *uints(*distinct[1:]), *longs(*p.right.batch),
        ],
        (ceil_div(p.k, _PACK_ROWS), panels, math.prod(distinct)), (1, 1, 1),
    )  # fmt: skip
    sums = partial_bytes(p)
    multiply = multiply_panels(runtime, p, tile, (Tensor(p.left.place),), steps)
    return LaunchSequence("matmul", (pack, multiply), (packed_bytes, *([sums] if sums else [])))


def partial_bytes(p: Product) -> int:
    """The workspace in which the CPU kernel keeps sums that the result's type cannot hold; 0 where it needs none."""
    return p.count * p.m * p.n * p.element.itemsize if p.k > _DEPTH and p.element is not p.out_dtype else 0


def multiply_panels(
    runtime: Runtime,
    p: Product,
    tile: RegisterTile,
    left: tuple[Parameter, ...],
    steps: tuple[int, int, int],
    *,
    bias_by_rows: bool = False,
    first_batch: int = 0,
    accumulate: bool = False,
) -> KernelLaunch:
    """Multiply `left` (memory and offset) by panels packed in workspace `p.temporary`; sums wait in the one after it.

    `steps` says how many packed operands lie between neighbours on each batch axis.
    """
    sums: list[Parameter] = [Workspace(p.temporary + 1)] if partial_bytes(p) else []
    block_rows, block_columns = _blocks(runtime, p, tile)
    defined = definitions(
        p,
        REAL_DTYPE=p.element.name,
        WIDTH=tile.width,
        MR=tile.rows,
        VECTORS=tile.vectors,
        DEPTH=_DEPTH,
        SPLIT=bool(sums),
    )
    if bias_by_rows and p.bias is not None:
        defined["BIAS"] = 2
    return runtime.launch(
        "matmul_panels", "matmul_panels", defined,
        [
            *left, Workspace(p.temporary), *bias(p), *sums, Tensor(p.out.place), *uints(p.m, p.n, p.k),
            *uints(block_rows, block_columns), *longs(p.left.row, p.left.column), *uints(*p.batch[1:]),
            *longs(*p.left.batch), *uints(*steps, first_batch, accumulate),
        ],
        (ceil_div(p.m, block_rows), ceil_div(p.n, block_columns), p.count), (1, 1, 1),
    )  # fmt: skip


def _step(distinct: tuple[int, ...], axis: int) -> int:
    """How many packed operands lie between neighbours on a batch axis; 0 where they share one."""
    return math.prod(distinct[axis + 1 :]) if distinct[axis] > 1 else 0


def _blocks(runtime: Runtime, p: Product, tile: RegisterTile) -> tuple[int, int]:
    """Rows and columns per work-item: large, for reuse in the caches, but enough of them to keep every core busy."""
    panels, columns = _BLOCK_PANELS, min(_BLOCK_COLUMNS, round_up(p.n, tile.columns))
    columns = max(columns // tile.columns, 1) * tile.columns

    def blocks() -> int:
        return ceil_div(p.m, panels * tile.rows) * ceil_div(p.n, columns) * p.count

    while blocks() < 4 * runtime.features.compute_units:
        if panels > 1:
            panels //= 2
        elif columns > 4 * tile.columns:
            columns = round_up(columns // 2, tile.columns)
        else:
            break
    return panels * tile.rows, columns
