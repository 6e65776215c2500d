"""Matrix products: which kernel takes which shapes.

- CPU: panels of the right operand are packed once, then register tiles sweep over them.
- GPU: tiles staged in local memory; the terms are shared out among groups where there are too few tiles.
- Up to four rows or columns: the matrix is read once, along whichever axis is contiguous.
- Everything small or unusual: straight from memory.

All of them take operands of any strides, so that a transposed view costs no copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from polyhal.backends.common import products
from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.products import Product, padded
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import KernelLaunch, Parameter
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_FEW = 4
"""Up to so many rows or columns a product is bound by reading the matrix."""
_SMALL = 1 << 15
"""Multiplications below which packing or tiling costs more than it saves."""
_SMALL_GROUP = 16
_SMALL_ROWS = 4
_DEPTH = 384
"""Terms per pass of the CPU kernel: a panel of the left operand then stays in the first-level cache."""
_PACK_ROWS = 32
_BLOCK_PANELS = 8
_BLOCK_COLUMNS = 512
_GROUP = 256
_SPLIT_TERMS = 256
_MAX_SPLITS = 32
_VECTOR_GROUP = 128
_VECTOR_SIDE = 32


def _definitions(p: Product, **more: str | int | bool) -> dict[str, str | int | bool]:
    common: dict[str, str | int | bool] = {
        "DTYPE": p.dtype.name, "OUT_DTYPE": p.out_dtype.name, "REAL": type_name(p.kind), "BIAS": p.bias is not None
    }  # fmt: skip
    return common | more


def _bias(p: Product) -> list[Parameter]:
    return [] if p.bias is None else [Tensor(p.bias)]


def build(runtime: Runtime, p: Product) -> Launch:
    """The launch for a product."""
    if p.dtype.kind == "bool":
        return _small(runtime, p)
    vector = _matvec(runtime, p)
    if vector is not None:
        return vector
    if p.count * p.m * p.n * p.k <= _SMALL:
        return _small(runtime, p)
    if runtime.features.cpu:
        return _panels(runtime, p)
    if min(p.m, p.n) < _SMALL_GROUP or runtime.capabilities.limits.max_group_size < _GROUP:
        return _small(runtime, p)
    return _tiles(runtime, p)


def _uints(*values: int) -> list[Parameter]:
    return [Constant(v, "uint") for v in values]


def _longs(*values: int) -> list[Parameter]:
    return [Constant(v, "long") for v in values]


def _operands(p: Product) -> list[Parameter]:
    """The strides of both operands and the batch, as the kernels that read both from memory take them."""
    return [
        *_longs(p.left.row, p.left.column, p.right.row, p.right.column), *_uints(*p.batch[1:]), *_longs(*p.left.batch),
        *_longs(*p.right.batch),
    ]  # fmt: skip


def _small(runtime: Runtime, p: Product) -> Launch:
    parameters = [
        Tensor(p.left.place), Tensor(p.right.place), *_bias(p), Tensor(p.out.place), *_uints(p.m, p.n, p.k), *_operands(p)
    ]  # fmt: skip
    items = (p.n, ceil_div(p.m, _SMALL_ROWS), p.count)
    definitions = _definitions(p, ROWS=_SMALL_ROWS, LOGICAL=p.dtype.kind == "bool")
    return runtime.launch("matmul_small", "matmul_small", definitions, parameters, items, (_SMALL_GROUP, 1, 1))


def _matvec(runtime: Runtime, p: Product) -> Launch | None:
    """A launch where one side has few vectors and the other is contiguous along some axis, else None."""
    if min(p.m, p.n) > _FEW:
        return None
    if p.m > p.n:
        p = p.turned()
    x, y = p.left, p.right
    along = y.row == 1 and x.column == 1 and p.k > 1
    if not along and y.column != 1:
        return None
    cpu = runtime.features.cpu
    width = runtime.features.vector_width
    if p.element.itemsize > 4:
        width = max(1, width // 2)
    group, side = (1, 1) if cpu else (_VECTOR_GROUP, _VECTOR_SIDE)
    per_item = 4
    definitions = _definitions(
        p, WIDTH=width, ROWS=1 if p.m == 1 else _FEW, ALONG=along, GROUP=group, SIDE=side, COLUMNS=per_item
    )
    groups = ceil_div(p.n, per_item if along else side * width)
    bias = [] if p.bias is None else [Tensor(p.bias), *_uints(p.bias_row, p.bias_column)]
    parameters = [
        Tensor(x.place), Tensor(y.place), *bias, Tensor(p.out.place), *_uints(p.m, p.n, p.k),
        *_longs(x.row, x.column, y.row, y.column, p.out.row, p.out.column), *_uints(*p.batch[1:]), *_longs(*x.batch),
        *_longs(*y.batch),
    ]  # fmt: skip
    return runtime.launch("matvec", "matvec", definitions, parameters, (groups * group, p.count), (group, 1))


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


def _panels(runtime: Runtime, p: Product) -> Launch:
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
            Tensor(p.right.place), Workspace(p.temporary), *_uints(p.n, p.k), *_longs(p.right.row, p.right.column),
            *_uints(*distinct[1:]), *_longs(*p.right.batch),
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
    definitions = _definitions(
        p,
        REAL_DTYPE=p.element.name,
        WIDTH=tile.width,
        MR=tile.rows,
        VECTORS=tile.vectors,
        DEPTH=_DEPTH,
        SPLIT=bool(sums),
    )
    if bias_by_rows and p.bias is not None:
        definitions["BIAS"] = 2
    return runtime.launch(
        "matmul_panels", "matmul_panels", definitions,
        [
            *left, Workspace(p.temporary), *_bias(p), *sums, Tensor(p.out.place), *_uints(p.m, p.n, p.k),
            *_uints(block_rows, block_columns), *_longs(p.left.row, p.left.column), *_uints(*p.batch[1:]),
            *_longs(*p.left.batch), *_uints(*steps, first_batch, accumulate),
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


def _tiles(runtime: Runtime, p: Product) -> Launch:
    units = runtime.features.compute_units
    element = p.element
    # Large tiles reuse more; where there are too few to go round, their terms are shared out, or the tiles made smaller.
    few = _tile_count(p, 128) < units
    quads = 1 if element.itemsize > 4 or (few and _tile_count(p, 128) * (p.k // _SPLIT_TERMS) < units) else 2
    tile = 64 * quads
    tiles = _tile_count(p, tile)
    splits = max(1, min(4 * units // tiles, p.k // _SPLIT_TERMS, _MAX_SPLITS)) if tiles < 2 * units else 1
    depth = 8 * (3 - quads)
    terms = round_up(ceil_div(p.k, splits), depth)
    splits = ceil_div(p.k, terms)
    definitions = _definitions(
        p, QUADS=quads, DEPTH=depth, SPLIT=splits > 1, A_BY_ROWS=p.left.column == 1 or p.left.row != 1,
        B_BY_ROWS=p.right.column == 1 or p.right.row != 1,
    )  # fmt: skip
    target: Parameter = Workspace(p.temporary) if splits > 1 else Tensor(p.out.place)
    if splits > 1:
        definitions["BIAS"] = False
    multiply = runtime.launch(
        "matmul_tiles", "matmul_tiles", definitions,
        [
            Tensor(p.left.place), Tensor(p.right.place), *(_bias(p) if splits == 1 else []), target,
            *_uints(p.m, p.n, p.k, terms), *_operands(p),
        ],
        (tiles // p.count * _GROUP, splits, p.count), (_GROUP, 1, 1),
    )  # fmt: skip
    if splits == 1:
        return multiply
    size = p.count * p.m * p.n
    total = runtime.launch(
        "matmul_sum", "matmul_sum",
        {"OUT_DTYPE": p.out_dtype.name, "DTYPE": p.dtype.name, "REAL": type_name(p.kind), "BIAS": p.bias is not None},
        [
            Workspace(p.temporary), *_bias(p), Tensor(p.out.place), Constant(size, "ulong"), *_uints(p.n, splits),
        ],
        (size,), (runtime.features.group_size,),
    )  # fmt: skip
    return LaunchSequence("matmul", (multiply, total), (splits * size * element.itemsize,))


def _tile_count(p: Product, tile: int) -> int:
    return ceil_div(p.m, tile) * ceil_div(p.n, tile) * p.count


batched = partial(products.batched, build)
LOWERINGS = products.lowerings(build)
