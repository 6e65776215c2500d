"""Matrix products: which kernel takes which shapes.

- CPU: panels of the right operand are packed once, then register tiles sweep over them.
- GPU: tiles staged in local memory; the terms are shared out among groups where there are too few tiles.
- Up to four rows or columns: the matrix is read once, along whichever axis is contiguous.
- Everything small or unusual: straight from memory.

All of them take operands of any strides, so that a transposed view costs no copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.expressions import register_class
from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import KernelLaunch, Parameter
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch

_BATCH_AXES = 3
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

_ELEMENT: dict[str, DType] = {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "int": dtypes.int32,
    "uint": dtypes.uint32,
    "long": dtypes.int64,
    "ulong": dtypes.uint64,
}


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` matrices (m, k) x (k, n) with strides in elements; the result is contiguous.

    `left`, `right`, `bias`, `out` and `temporary` are positions in the argument list of the launch.
    """

    batch: tuple[int, int, int]
    m: int
    n: int
    k: int
    a_batch: tuple[int, int, int]
    a_row: int
    a_column: int
    b_batch: tuple[int, int, int]
    b_row: int
    b_column: int
    dtype: DType
    out_dtype: DType
    left: int
    right: int
    bias: int | None
    out: int
    temporary: int

    @property
    def count(self) -> int:
        return math.prod(self.batch)

    @property
    def real(self) -> str:
        """The C type of the sums."""
        return type_name(register_class(self.out_dtype))

    def definitions(self, **more: str | int | bool) -> dict[str, str | int | bool]:
        common: dict[str, str | int | bool] = {
            "DTYPE": self.dtype.name, "OUT_DTYPE": self.out_dtype.name, "REAL": self.real, "BIAS": self.bias is not None
        }  # fmt: skip
        return common | more

    def bias_parameter(self) -> list[Parameter]:
        return [] if self.bias is None else [Tensor(self.bias)]


def describe(
    x: tuple[tuple[int, ...], tuple[int, ...]],
    y: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: DType,
    out: Spec,
    places: tuple[int, int, int | None, int, int],
) -> Product | Declined:
    """The product of views `x` (..., M, K) and `y` (..., K, N), each a shape and strides, with batches broadcast.

    Batch axes join the rows of `x` where `y` is the same for all of them and the strides permit.
    """
    (x_shape, x_strides), (y_shape, y_strides) = x, y
    (m, k), n = x_shape[-2:], y_shape[-1]
    batch = out.shape[: out.ndim - 2]
    a = broadcast_strides(x_shape[:-2], x_strides[:-2], batch)
    b = broadcast_strides(y_shape[:-2], y_strides[:-2], batch)
    a_row = x_strides[-2]
    if not any(s for s, length in zip(b, batch, strict=True) if length > 1):
        lengths, (steps, _) = collapse((*batch, m), ((*a, a_row), (0,) * (len(batch) + 1)))
        batch, m = lengths[:-1], lengths[-1]
        a, a_row, b = steps[:-1], steps[-1], (0,) * len(batch)
    else:
        batch, (a, b) = collapse(batch, (a, b))
    if len(batch) > _BATCH_AXES:
        return Declined(f"the batch has {len(batch)} axes that cannot be merged; the kernels take {_BATCH_AXES}")
    if max(m, n, k) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    left, right, bias, result, temporary = places
    return Product(
        _padded(batch, 1), m, n, k, _padded(a, 0), a_row, x_strides[-1], _padded(b, 0), y_strides[-2], y_strides[-1],
        dtype, out.dtype, left, right, bias, result, temporary,
    )  # fmt: skip


def _padded(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    first, second, third = (fill,) * (_BATCH_AXES - len(values)) + values
    return first, second, third


def build(runtime: Runtime, p: Product) -> Launch | Declined:
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
        *_longs(p.a_row, p.a_column, p.b_row, p.b_column), *_uints(*p.batch[1:]), *_longs(*p.a_batch), *_longs(*p.b_batch)
    ]  # fmt: skip


def _small(runtime: Runtime, p: Product) -> Launch:
    parameters = [
        Tensor(p.left), Tensor(p.right), *p.bias_parameter(), Tensor(p.out), *_uints(p.m, p.n, p.k), *_operands(p)
    ]  # fmt: skip
    items = (p.n, ceil_div(p.m, _SMALL_ROWS), p.count)
    definitions = p.definitions(ROWS=_SMALL_ROWS, LOGICAL=p.dtype.kind == "bool")
    return runtime.launch("matmul_small", "matmul_small", definitions, parameters, items, (_SMALL_GROUP, 1, 1))


def _matvec(runtime: Runtime, p: Product) -> Launch | None:
    """A launch where one side has few vectors and the other is contiguous along some axis, else None."""
    if min(p.m, p.n) > _FEW:
        return None
    if p.m <= p.n:
        rows, columns = p.m, p.n
        x_place, x_row, x_column, x_batch = p.left, p.a_row, p.a_column, p.a_batch
        y_place, y_row, y_column, y_batch = p.right, p.b_row, p.b_column, p.b_batch
        out_steps, bias_steps = (p.n, 1), (0, 1)
    else:
        rows, columns = p.n, p.m
        x_place, x_row, x_column, x_batch = p.right, p.b_column, p.b_row, p.b_batch
        y_place, y_row, y_column, y_batch = p.left, p.a_column, p.a_row, p.a_batch
        out_steps, bias_steps = (1, p.n), (1, 0)
    along = y_row == 1 and x_column == 1 and p.k > 1
    if not along and y_column != 1:
        return None
    cpu = runtime.features.cpu
    width = runtime.features.vector_width
    if p.real in ("double", "long", "ulong"):
        width = max(1, width // 2)
    group, side = (1, 1) if cpu else (_VECTOR_GROUP, _VECTOR_SIDE)
    per_item = 4
    definitions = p.definitions(
        WIDTH=width, ROWS=1 if rows == 1 else _FEW, ALONG=along, GROUP=group, SIDE=side, COLUMNS=per_item
    )
    groups = ceil_div(columns, per_item if along else side * width)
    bias = [] if p.bias is None else [Tensor(p.bias), *_uints(*bias_steps)]
    parameters = [
        Tensor(x_place), Tensor(y_place), *bias, Tensor(p.out), *_uints(rows, columns, p.k),
        *_longs(x_row, x_column, y_row, y_column, *out_steps), *_uints(*p.batch[1:]), *_longs(*x_batch), *_longs(*y_batch),
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


def register_tile(runtime: Runtime, real: str, m: int) -> RegisterTile:
    """The tile for `m` rows: what fits the register file, with the fewest rows computed in vain."""
    width = runtime.features.vector_width
    wide = width >= 16  # AVX-512 has 32 registers; others are taken to have 16
    if real in ("double", "long", "ulong"):
        width //= 2
    if not wide:
        return RegisterTile(4, 3, width)
    rows = min((12, 8), key=lambda r: (round_up(m, r) * (1.0 if r == 12 else 1.05), r))
    return RegisterTile(rows, 2, width)


def _panels(runtime: Runtime, p: Product) -> Launch:
    tile = register_tile(runtime, p.real, p.m)
    panels = ceil_div(p.n, tile.columns)
    # Each distinct right operand is packed once, however many batches share it.
    distinct = _padded(tuple(n if s else 1 for n, s in zip(p.batch, p.b_batch, strict=True)), 1)
    steps = _padded(tuple(_step(distinct, i) for i in range(_BATCH_AXES)), 0)
    packed_bytes = math.prod(distinct) * panels * tile.columns * p.k * _ELEMENT[p.real].itemsize
    pack = runtime.launch(
        "matmul_pack", "matmul_pack",
        {"DTYPE": p.dtype.name, "REAL": p.real, "NR": tile.columns, "ROWS": _PACK_ROWS},
        [
            Tensor(p.right), Workspace(p.temporary), *_uints(p.n, p.k), *_longs(p.b_row, p.b_column),
            *_uints(*distinct[1:]), *_longs(*p.b_batch),
        ],
        (ceil_div(p.k, _PACK_ROWS), panels, math.prod(distinct)), (1, 1, 1),
    )  # fmt: skip
    partial = partial_bytes(p)
    multiply = multiply_panels(runtime, p, tile, (Tensor(p.left),), steps)
    return LaunchSequence("matmul", (pack, multiply), (packed_bytes, *([partial] if partial else [])))


def partial_bytes(p: Product) -> int:
    """The workspace in which the CPU kernel keeps sums that the result's type cannot hold; 0 where it needs none."""
    element = _ELEMENT[p.real]
    return p.count * p.m * p.n * element.itemsize if p.k > _DEPTH and element is not p.out_dtype else 0


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
    partial: list[Parameter] = [Workspace(p.temporary + 1)] if partial_bytes(p) else []
    block_rows, block_columns = _blocks(runtime, p, tile)
    definitions = p.definitions(
        REAL_DTYPE=_ELEMENT[p.real].name,
        WIDTH=tile.width,
        MR=tile.rows,
        VECTORS=tile.vectors,
        DEPTH=_DEPTH,
        SPLIT=bool(partial),
    )
    if bias_by_rows and p.bias is not None:
        definitions["BIAS"] = 2
    return runtime.launch(
        "matmul_panels", "matmul_panels", definitions,
        [
            *left, Workspace(p.temporary), *p.bias_parameter(), *partial, Tensor(p.out), *_uints(p.m, p.n, p.k),
            *_uints(block_rows, block_columns), *_longs(p.a_row, p.a_column), *_uints(*p.batch[1:]), *_longs(*p.a_batch),
            *_uints(*steps, first_batch, accumulate),
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
    element = _ELEMENT[p.real]
    # Large tiles reuse more; where there are too few to go round, their terms are shared out, or the tiles made smaller.
    few = _tile_count(p, 128) < units
    quads = 1 if element.itemsize > 4 or (few and _tile_count(p, 128) * (p.k // _SPLIT_TERMS) < units) else 2
    tile = 64 * quads
    tiles = _tile_count(p, tile)
    splits = max(1, min(4 * units // tiles, p.k // _SPLIT_TERMS, _MAX_SPLITS)) if tiles < 2 * units else 1
    depth = 8 * (3 - quads)
    terms = round_up(ceil_div(p.k, splits), depth)
    splits = ceil_div(p.k, terms)
    definitions = p.definitions(
        QUADS=quads, DEPTH=depth, SPLIT=splits > 1, A_BY_ROWS=p.a_column == 1 or p.a_row != 1,
        B_BY_ROWS=p.b_column == 1 or p.b_row != 1,
    )  # fmt: skip
    target: Parameter = Workspace(p.temporary) if splits > 1 else Tensor(p.out)
    if splits > 1:
        definitions["BIAS"] = False
    multiply = runtime.launch(
        "matmul_tiles", "matmul_tiles", definitions,
        [
            Tensor(p.left), Tensor(p.right), *(p.bias_parameter() if splits == 1 else []), target,
            *_uints(p.m, p.n, p.k, terms), *_operands(p),
        ],
        (tiles // p.count * _GROUP, splits, p.count), (_GROUP, 1, 1),
    )  # fmt: skip
    if splits == 1:
        return multiply
    size = p.count * p.m * p.n
    total = runtime.launch(
        "matmul_sum", "matmul_sum",
        {"OUT_DTYPE": p.out_dtype.name, "DTYPE": p.dtype.name, "REAL": p.real, "BIAS": p.bias is not None},
        [
            Workspace(p.temporary), *p.bias_parameter(), Tensor(p.out), Constant(size, "ulong"), *_uints(p.n, splits),
        ],
        (size,), (runtime.features.group_size,),
    )  # fmt: skip
    return LaunchSequence("matmul", (multiply, total), (splits * size * element.itemsize,))


def _tile_count(p: Product, tile: int) -> int:
    return ceil_div(p.m, tile) * ceil_div(p.n, tile) * p.count


def batched(runtime: Runtime, a: Spec, b: Spec, out: Spec) -> Launch:
    """A launch (a, b, out) for shapes (B, M, K), (B, K, N), (B, M, N), as the contract's core method needs it."""
    p = describe((a.shape, a.strides), (b.shape, b.strides), a.dtype, out, (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    launch = build(runtime, p)
    assert not isinstance(launch, Declined)
    return launch


def _matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, y = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(y, Spec):
        return Declined("an operand is a number")
    if x.dtype is not y.dtype:
        return Declined(f"operands of {x.dtype.name} and {y.dtype.name}")
    p = describe((x.shape, x.strides), (y.shape, y.strides), x.dtype, out, (0, 1, None, 2, 3))
    return p if isinstance(p, Declined) else build(runtime, p)


def _linear(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    if x.dtype is not weight.dtype or (bias is not None and bias.dtype is not x.dtype):
        return Declined("operands of different dtypes")
    if isinstance(bias, Spec) and not bias.is_contiguous:
        return Declined("the bias is not contiguous")
    # A single vector counts as one row.
    shape, strides = (x.shape, x.strides) if x.ndim > 1 else ((1, *x.shape), (0, *x.strides))
    rows = out if out.ndim > 1 else Spec(out.dtype, (1, *out.shape), (0, *out.strides))
    turned = ((weight.shape[1], weight.shape[0]), (weight.strides[1], weight.strides[0]))
    p = describe((shape, strides), turned, x.dtype, rows, (0, 1, None if bias is None else 2, 3, 4))
    return p if isinstance(p, Declined) else build(runtime, p)


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"matmul": _matmul, "linear": _linear}
