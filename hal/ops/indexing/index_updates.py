"""PyTorch's `index_add`, `index_copy`, `index_fill`, `index_reduce`, `index_put` and `put`: slices and elements by number.

Negative numbers wrap. Numbers out of range raise IndexError on CPUs and in debug mode (`polyhal.debug`), and are skipped
elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.indexing.range_errors import names_range_errors
from polyhal.hal.ops.indexing.row_masks import mask_of_rows
from polyhal.hal.ops.indexing.row_updates import wrap_index
from polyhal.hal.ops.indexing.table_updates import TableUpdate, table_update, updated
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import TensorLike


@composite(in_place=True, aten=".default")
@names_range_errors
def index_add(x: TensorLike, axis: int, index: TensorLike, source: TensorLike, *, alpha: float = 1) -> Any:
    """`x` with `alpha` times each slice of `source` along `axis` added to the slice that the vector `index` names.

    Compare `torch.index_add`. Raises ShapeError.
    """
    return updated(x, _index_add(x, axis, index, source, alpha=alpha))


@table_update
def _index_add(
    x: TensorLike, axis: int, index: TensorLike | int, source: TensorLike | int, *, alpha: float = 1
) -> TableUpdate | None:
    scaled = source if alpha == 1 and not isinstance(alpha, bool) else _scaled(source, alpha)
    return _slices("index_add", x, axis, index, scaled, "sum")


def _scaled(source: Any, alpha: Any) -> Any:
    if source.dtype.kind == "bool":
        return source if alpha else full(source.shape, False, dtypes.bool_, device=source.device)
    return source * alpha


@composite(in_place=True, aten=".default")
@names_range_errors
def index_copy(x: TensorLike, axis: int, index: TensorLike | int, source: TensorLike | int) -> Any:
    """`x` with the slices along `axis` that the vector `index` names replaced by those of `source`; the last one wins.

    Compare `torch.index_copy`. Raises ShapeError.
    """
    return updated(x, _index_copy(x, axis, index, source))


@table_update
def _index_copy(x: TensorLike, axis: int, index: TensorLike | int, source: TensorLike | int) -> TableUpdate | None:
    return _slices("index_copy", x, axis, index, source, "replace")


@composite(in_place=True, aten=".default")
@names_range_errors
def index_reduce(
    x: TensorLike,
    axis: int,
    index: TensorLike | int,
    source: TensorLike | int,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """`x` with the slices along `axis` that `index` names combined with those of `source`, by prod, mean, amax or amin.

    Without `include_self`, named slices of `x` do not count. Compare `torch.index_reduce`. Raises ShapeError, and ValueError
    for another reduction.
    """
    return updated(x, _index_reduce(x, axis, index, source, reduce, include_self=include_self))


@table_update
def _index_reduce(
    x: TensorLike,
    axis: int,
    index: TensorLike | int,
    source: TensorLike | int,
    reduce: str,
    *,
    include_self: bool = True,
) -> TableUpdate | None:
    return _slices("index_reduce", x, axis, index, source, reduce, include_self)


@composite(in_place=True, aten=".int_Scalar .int_Tensor")
@names_range_errors
def index_fill(x: TensorLike, axis: int, index: TensorLike | int, value: TensorLike | float) -> Any:
    """`x` with `value`, a number or a tensor without axes, in the slices along `axis` that the vector `index` names.

    Compare `torch.index_fill`.
    """
    return updated(x, _index_fill(x, axis, index, value))


@table_update
def _index_fill(x: TensorLike, axis: int, index: Any, value: TensorLike | float) -> TableUpdate | None:
    shape = x.shape or (1,)
    axis = normalize_axis(axis, len(shape))
    filled = value if hasattr(value, "ref") else full((), number_of(x.dtype, value), x.dtype, device=x.device)
    source = broadcast_to(filled, tuple(index.size if k == axis else n for k, n in enumerate(shape)))
    return _slices("index_fill", x, axis, index, source, "replace")


def number_of(dtype: DType, value: Any) -> Any:
    """Convert a number to the kind of `dtype`."""
    return bool(value) if dtype.kind == "bool" else int(value) if dtype.is_integral else value


def _slices(
    name: str, x: TensorLike, axis: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> TableUpdate | None:
    """Return the update of slices as an update of rows: one row per slice and index of the axes before."""
    shape = x.shape or (1,)
    axis = normalize_axis(axis, len(shape))
    count, length = index.size, shape[axis]
    expected = tuple(count if k == axis else n for k, n in enumerate(shape))
    if source.shape != expected and not (source.size == count and math.prod(expected) == count and source.ndim <= 1):
        raise ShapeError(message(name, f"the source has shape {source.shape}", expected=str(expected)))
    if not x.size or not count:
        return None
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    table, rows = reshape(x, (outer * length, inner)), reshape(source, (outer * count, inner))
    flat = reshape(index, (-1,))
    if outer == 1:
        return TableUpdate(name, table, flat, rows, reduce, include_self, wraps=True)
    along = wrap_index(flat, length)
    first = reshape(arange(0, outer * length, length, dtypes.int64, device=x.device), (outer, 1))
    numbers = reshape(where(less(along, 0), -1, first + along), (-1,))
    return TableUpdate(name, table, numbers, rows, reduce, include_self)


@composite()
@names_range_errors
def index_put(x: TensorLike, indices: Any, values: TensorLike, accumulate: bool = False) -> Any:
    """`x` with `x[indices] = values`, where the last of several writers wins, or with the sum of all added if they accumulate.

    `indices` holds tensors of integers and masks, and None for a whole axis; `values` is broadcast. Compare `torch.index_put`.
    """
    items = tuple(slice(None) if i is None else i for i in indices)
    mask = mask_of_rows(x, items, values)
    if mask is not None:
        return where(mask, x + values if accumulate else values, x)
    # Positions count from 1, so that an index out of range, which reads 0 where it is not refused, names no element.
    numbers = reshape(arange(1, x.size + 1, 1, dtypes.int64, device=x.device), x.shape)
    positions = numbers[items] - 1
    rows = reshape(broadcast_to(values, positions.shape), (-1, 1))
    return updated(x, _elements("index_put", x, positions, rows, accumulate))


@composite(in_place=True, aten=".default put_")
@names_range_errors
def put(x: TensorLike, index: TensorLike, source: TensorLike, accumulate: bool = False) -> Any:
    """`x` with the elements that `index` names in row-major order replaced by those of `source`, or added to them.

    Compare `torch.put`. Raises ShapeError.
    """
    return updated(x, _put(x, index, source, accumulate))


@table_update
def _put(x: TensorLike, index: TensorLike, source: TensorLike, accumulate: bool = False) -> TableUpdate | None:
    if source.size != index.size:
        raise ShapeError(message("put", f"{index.size} indices and {source.size} elements", expected="as many"))
    update = _elements("put", x, index, reshape(source, (-1, 1)), accumulate)
    return None if update is None else update._replace(wraps=True)


def _elements(
    name: str, x: TensorLike, positions: TensorLike, rows: TensorLike, accumulate: bool
) -> TableUpdate | None:
    if not positions.size:
        return None
    return TableUpdate(name, reshape(x, (-1, 1)), reshape(positions, (-1,)), rows, "sum" if accumulate else "replace")
