"""Matrix products: which kernel takes which shapes.

- GPU: tiles staged in workgroup memory; the terms are shared out among groups where there are too few tiles.
- GPU, up to four rows or columns whose terms lie side by side: dot products, the terms shared out within a group.
- CPU, and everything small or thin: blocks straight from memory.

All of them take operands of any strides, so that a transposed view costs no copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.common.problems import gemm
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.wgpu.dialect import type_name
from polyhal.backends.wgpu.launch import DispatchLaunch, Parameter
from polyhal.backends.wgpu.lowering.gemm.large import halved
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.backends.wgpu.shader import Definitions
from polyhal.hal.protocol import Launch

_LANES = 4
_FEW = 4
"""Up to so many rows or columns a product is bound by reading the matrix."""
_SMALL = 1 << 15
"""Multiplications below which staging costs more than it saves."""
_THIN = 16
"""Rows or columns below which most of a tile would be empty."""
_BUSY = 192
"""Groups that keep a large GPU busy; how many units a device has is not known."""
_BUSY_BLOCKS = 1024
_BUSY_CPU = 4
_LEAST_TERMS = 256
_LEAST_TERMS_SMALL = 64
_STEP = 16
"""Every kernel's strips divide this many terms."""
_LONG = 512
"""Terms from which on a group shares them out for a few dot products."""
_WORTH_COMPILING = 1 << 24
"""Multiplications from which on a CPU gets a kernel that takes seconds to compile."""
_DOT_GROUP = 128
_DOT_COLUMNS = 4
_SUM_GROUP = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """Template variables of lib/gemm_tiles.wgsl: 4 x 4 blocks per invocation, terms per strip, strips in memory at once."""

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
        """How many tiles cover a matrix."""
        return ceil_div(m, self.rows) * ceil_div(n, self.columns)

    def memory(self, itemsize: int) -> int:
        """Bytes of workgroup memory for elements of that size."""
        return self.stages * self.depth * _LANES * (16 * (self.quad_rows + self.quad_columns) + 2) * itemsize

    def definitions(self) -> Definitions:
        return {
            "QUAD_ROWS": self.quad_rows, "QUAD_COLUMNS": self.quad_columns, "DEPTH": self.depth, "STAGES": self.stages,
            "BLOCK_COLUMNS": self.block_columns,
        }  # fmt: skip


_TILES = {Tile(2, 2, 8): 1.0, Tile(1, 2, 16): 0.8, Tile(2, 1, 16): 0.8, Tile(1, 1, 16): 0.6}
"""Tiles, and how fast each is compared with the largest where no part of it is wasted."""
_SINGLE = Tile(1, 1, 8, 1)
"""For elements of 8 bytes."""


@dataclass(frozen=True, slots=True)
class Block:
    """The template variables of lib/gemm_blocks.wgsl: rows, and quads of columns, per invocation; invocations per group."""

    rows: int
    quads: int
    down: int
    across: int
    broadcast: bool = False

    def count(self, m: int, n: int) -> int:
        """How many groups cover a matrix."""
        return ceil_div(m, self.rows * self.down) * ceil_div(n, _LANES * self.quads * self.across)

    def definitions(self) -> Definitions:
        return {
            "ROWS": self.rows, "QUADS": self.quads, "DOWN": self.down, "ACROSS": self.across, "BROADCAST": self.broadcast
        }  # fmt: skip


def build(runtime: Runtime, p: Product) -> Launch:
    """The launch for a product."""
    halves = halved(runtime, p, build, add)
    if halves is not None:
        return halves
    if runtime.features.cpu or p.dtype.kind == "bool":
        return blocks(runtime, p)
    if min(p.m, p.n) <= _FEW:
        return _dots(runtime, p) or blocks(runtime, p)
    if min(p.m, p.n) < _THIN or p.count * p.m * p.n * p.k <= _SMALL:
        return blocks(runtime, p)
    return tiles(runtime, p, choose_tile(runtime, p))


def uints(*values: int) -> list[Parameter]:
    """Numbers known when a launch is made; negative strides wrap, as the sums of positions that they enter do."""
    return [Constant(v, "uint") for v in values]


def definitions(p: Product, *, split: bool) -> dict[str, object]:
    """Template variables of lib/store_sums.wgsl; with `split` the kernel leaves partial sums in the workspace."""
    return {
        "DTYPE": p.dtype.name, "OUT_DTYPE": p.out_dtype.name, "REAL": type_name(p.sum_class), "SPLIT": split,
        "BIAS": p.bias is not None and not split, "OUT_LANES": _out_lanes(p),
    }  # fmt: skip


def _out_lanes(p: Product) -> int:
    rows_of_vectors = p.out.column == 1 and p.out.row == p.n and p.n % _LANES == 0
    return _LANES if rows_of_vectors and p.out.aligned and p.sum_dtype.itemsize <= 4 else 1


def _walks(p: Product) -> dict[str, object]:
    """Along which axis, and how many elements at a time, each operand is read: A_ALONG, A_LANES, B_ALONG and B_LANES."""
    a_along, a_lanes = _walk(p.left, p.left.column, p.left.row, p.sum_dtype.itemsize)
    b_along, b_lanes = _walk(p.right, p.right.row, p.right.column, p.sum_dtype.itemsize)
    return {"A_ALONG": a_along, "A_LANES": a_lanes, "B_ALONG": b_along, "B_LANES": b_lanes}


def _walk(matrix: Matrix, term: int, place: int, itemsize: int) -> tuple[str, int]:
    """The axis of an operand on which elements lie side by side, and how many of them one load moves.

    `term` is the stride between what is summed over, `place` that between rows of the left or columns of the right operand.
    """
    along, step, other = ("places", place, term) if abs(place) < abs(term) else ("terms", term, place)
    whole = step == 1 and matrix.aligned and all(s % _LANES == 0 for s in (other, *matrix.batch))
    return along, _LANES if whole and itemsize <= 4 else 1


def _targets(p: Product) -> tuple[list[Parameter], list[Parameter]]:
    """The buffers of lib/store_sums.wgsl and the numbers after them."""
    bias: list[Parameter] = [] if p.bias is None else [Tensor(p.bias)]
    numbers = [p.out.row, p.out.column, *([] if p.bias is None else [p.bias_row, p.bias_column])]
    return [*bias, Tensor(p.out.place)], uints(*numbers)


def _parameters(p: Product, terms: int, *, split: bool) -> list[Parameter]:
    """The parameters of gemm/operands.wgsl."""
    targets, numbers = ([Workspace(p.workspace)], []) if split else _targets(p)
    return [
        Tensor(p.left.place), Tensor(p.right.place), *targets,
        *uints(p.m, p.n, p.k, terms, p.count, *p.batch[1:]), *uints(p.left.row, p.left.column, *p.left.batch),
        *uints(p.right.column, p.right.row, *p.right.batch), *numbers,
    ]  # fmt: skip


def share_out(runtime: Runtime, p: Product, groups: int, *, small: bool) -> tuple[int, int]:
    """Into how many splits to cut the terms, so that more than `groups` groups are busy, and the terms of each."""
    workers = _BUSY_CPU if runtime.features.cpu else _BUSY_BLOCKS if small else 2 * _BUSY
    least = _LEAST_TERMS_SMALL if small else _LEAST_TERMS
    room = runtime.features.max_binding // (p.count * p.m * p.n * p.sum_dtype.itemsize)
    split = split_k(p.k, groups, workers, room, min_terms=least, multiple=_STEP)
    return split.splits, split.terms


def add(runtime: Runtime, p: Product, splits: int) -> Launch:
    """The launch that adds up what splits leave in the first workspace."""
    size = p.count * p.m * p.n
    targets, numbers = _targets(p)
    chosen = {**definitions(p, split=False), "GROUP": _SUM_GROUP, "OUT_LANES": 1}
    parameters = [Workspace(p.workspace), *targets, *uints(p.m, p.n, size, splits), *numbers]
    return runtime.launch("matmul_sum", "gemm/split_k_reduce", chosen, parameters, ceil_div(size, _SUM_GROUP))


def finish(runtime: Runtime, p: Product, multiply: DispatchLaunch, splits: int) -> Launch:
    """The launch, followed by the addition of what splits leave."""
    if splits == 1:
        return multiply
    sums = splits * p.count * p.m * p.n * p.sum_dtype.itemsize
    return LaunchSequence(multiply.name, (multiply, add(runtime, p, splits)), (sums,))


def choose_tile(runtime: Runtime, p: Product) -> Tile:
    """Large tiles reuse more, unless they reach far beyond the matrix or are too few, even with the terms shared out."""
    itemsize = p.sum_dtype.itemsize
    if itemsize > 4:
        return _SINGLE

    def cost(tile: Tile) -> float:
        groups = tile.count(p.m, p.n) * p.count
        busy = min(1.0, groups * max(1, p.k // _LEAST_TERMS) / _BUSY)
        return groups * tile.rows * tile.columns / (_TILES[tile] * busy)

    tile = min(_TILES, key=cost)
    return tile if tile.memory(itemsize) <= runtime.features.local_memory else replace(tile, stages=1)


def tiles(runtime: Runtime, p: Product, tile: Tile) -> Launch:
    """A product in tiles of workgroup memory."""
    groups = tile.count(p.m, p.n) * p.count
    splits, terms = share_out(runtime, p, groups, small=False)
    chosen = {**definitions(p, split=splits > 1), **tile.definitions(), **_walks(p)}
    parameters = _parameters(p, terms, split=splits > 1)
    multiply = runtime.launch("matmul_tiles", "gemm/tiles", chosen, parameters, groups * splits)
    return finish(runtime, p, multiply, splits)


def choose_block(runtime: Runtime, m: int, n: int, k: int) -> Block:
    """The block for a product of such matrices: on CPUs large ones reuse more, but take long to compile."""
    features = runtime.features
    if not features.cpu:
        return Block(1, 1, 1, 64) if m == 1 else Block(4, 1, 1, 64) if m <= _FEW else Block(4, 1, 4, 16)
    quads = 2 if min(m, n) > 32 and m * n * k >= _WORTH_COMPILING else 1
    if not features.subgroups or features.subgroup_sizes[0] < _LANES:
        return Block(8 if m > _FEW else _FEW, quads, 1, 8)
    return Block(_FEW if m <= _FEW else 16 * quads, quads, 1, 8, broadcast=True)


def blocks(runtime: Runtime, p: Product) -> Launch:
    """A product straight from memory."""
    block, turned = choose_block(runtime, p.m, p.n, p.k), choose_block(runtime, p.n, p.m, p.k)
    if _area(turned, p.n, p.m) < 0.75 * _area(block, p.m, p.n):
        p, block = p.transposed(), turned
    groups = block.count(p.m, p.n) * p.count
    logical = p.dtype.kind == "bool"
    # The splits of a product of booleans would have to be joined by `or`.
    splits, terms = (1, p.k) if logical else share_out(runtime, p, groups, small=True)
    walks = _walks(p)
    if walks["A_LANES"] == 1 or p.m == 1:
        walks |= {"A_ALONG": "terms", "A_LANES": walks["A_LANES"] if walks["A_ALONG"] == "terms" else 1}
    chosen = {**definitions(p, split=splits > 1), **block.definitions(), **walks, "LOGICAL": logical}
    parameters = _parameters(p, terms, split=splits > 1)
    multiply = runtime.launch("matmul_blocks", "gemm/blocks", chosen, parameters, groups * splits)
    return finish(runtime, p, multiply, splits)


def _area(block: Block, m: int, n: int) -> int:
    """Results computed, the superfluous ones included."""
    return block.count(m, n) * block.rows * block.down * block.quads * block.across


def _dots(runtime: Runtime, p: Product) -> Launch | None:
    """A launch where one side has few vectors and the terms of both lie side by side, else None."""
    if p.m > p.n:
        p = p.transposed()
    if p.right.row != 1 or p.left.column != 1 or p.k < _LONG:
        return None
    chosen = {
        **definitions(p, split=False), **group_reduce.definitions(runtime, _DOT_GROUP, _DOT_GROUP), **_walks(p),
        "OUT_LANES": 1, "ROWS": 1 if p.m == 1 else _FEW, "COLUMNS": _DOT_COLUMNS,
    }  # fmt: skip
    groups = ceil_div(p.n, _DOT_COLUMNS) * p.count
    parameters = _parameters(p, p.k, split=False)
    return runtime.launch("matmul_dots", "gemm/gemv", chosen, parameters, groups)


batched = partial(gemm.batched, build)
LOWERINGS = gemm.lowerings(build)
