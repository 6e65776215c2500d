"""`x[items] = value` with index tensors and masks, as an update of rows or of single elements in the memory of `x`.

Memory and time are proportional to the number of elements that are written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce as fold
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.indexing.row_updates import wrap_index
from polyhal.hal.ops.indexing.table_updates import TableUpdate
from polyhal.hal.ops.tensor_like import Array
from polyhal.index_items import check_numbers, indexed_axes, is_basic, is_mask
from polyhal.tensor.indexing import cast_to

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_arange, _broadcast_to, _less, _minimum, _permute, _reshape, _where = (
    FUNCTIONS[n] for n in ("arange", "broadcast_to", "less", "minimum", "permute", "reshape", "where")
)


def element_update(
    name: str, x: Tensor, items: tuple[Any, ...], value: Tensor | float, reduce: str
) -> TableUpdate | None:
    """Return the update of a tensor by `x[items] = value`, or `+=` for the reduction "sum"; None if it is empty.

    The layout of the tensor must be dense (`is_dense`).
    Raises IndexError for items that do not fit, and ShapeError for values that do not.
    """
    if len(items) == 1 and hasattr(items[0], "ref") and items[0].dtype.is_integral and x.ndim and x.is_contiguous:
        return _row_update(name, x, items[0], value, reduce)
    distinct = all(is_basic(i) or is_mask(i) for i in items)
    front, arrays, place = indexed_axes(x, items)
    count = len(arrays)
    lengths, rest = front.shape[:count], front.shape[count:]
    indices = [_index(i, n, x) for i, n in zip(arrays, lengths, strict=True)]
    shape = layout.broadcast_shapes(*(i.shape for i in indices))
    values = _values(x, value, shape, rest, place)
    if not values.size or not x.size:
        return None
    rows = (math.prod(lengths), math.prod(rest))
    view = layout.reshape(front.ref.spec, rows)
    if view is None or not layout.is_contiguous(view.shape, view.strides):
        numbers = _element_numbers(x, front, indices, shape)
        elements = _reshape(_permute(x, layout.axis_order(x.shape, x.strides)), (-1, 1))
        return TableUpdate(name, elements, numbers, _reshape(values, (-1, 1)), reduce, distinct=distinct)
    table, values = _reshape(front, rows), _reshape(values, (-1, rows[1]))
    if count == 1 and not distinct:
        return TableUpdate(name, table, _reshape(indices[0], (-1,)), values, reduce, wraps=True)
    steps = [math.prod(lengths[k + 1 :]) for k in range(count)]
    numbers = _reshape(_numbers(indices, lengths, steps), (-1,))
    return TableUpdate(name, table, numbers, values, reduce, distinct=distinct)


def _row_update(name: str, x: Tensor, index: Tensor, value: Tensor | float, reduce: str) -> TableUpdate | None:
    """Return the update of the slices along the first axis that one index tensor names, as in most writes."""
    index = index if index.device is x.device else index.to(x.device)
    values = _values(x, value, index.shape, x.shape[1:], 0)
    width = math.prod(x.shape[1:])
    count = math.prod(index.shape)
    if not count or not width or not x.shape[0]:
        return None
    table = _shaped(x, (x.shape[0], width))
    return TableUpdate(name, table, _shaped(index, (count,)), _shaped(values, (count, width)), reduce, wraps=True)


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else _reshape(x, shape)


def _index(item: Tensor | Array, length: int, x: Tensor) -> Any:
    """Return an index as a tensor on the device of `x`. Raises IndexError for an array or a list with numbers out of range."""
    from polyhal.tensor import Tensor, as_tensor

    if isinstance(item, Tensor):
        return item.to(x.device)
    check_numbers("setitem", item, length)
    return as_tensor(np.asarray(item, np.int64), device=x.device)


def _values(x: Tensor, value: Any, shape: tuple[int, ...], rest: tuple[int, ...], place: int) -> Any:
    """Return the values with the axes of the indices, which are at `place` in the result of indexing, moved to the front."""
    from polyhal.tensor import as_tensor

    value = cast_to(value, x)
    if not hasattr(value, "ref"):
        value = as_tensor(value, x.dtype, x.device)
    whole = (*rest[:place], *shape, *rest[place:])
    values = value if value.shape == whole else _broadcast_to(value, whole)
    count = len(shape)
    if not place or not count:
        return values
    return _permute(values, (*range(place, place + count), *range(place), *range(place + count, values.ndim)))


def _numbers(indices: Sequence[Tensor], lengths: Sequence[int], steps: Sequence[int]) -> Any:
    """Return the sum of the indices, each times its step; -1 where one of them is out of range."""
    wrapped = [wrap_index(i, n) for i, n in zip(indices, lengths, strict=True)]
    total = fold(lambda a, b: a + b, (w if s == 1 else w * s for w, s in zip(wrapped, steps, strict=True)))
    if len(wrapped) == 1 and steps[0] > 0:
        return total
    return _where(_less(fold(_minimum, wrapped), 0), -1, total)


def _element_numbers(x: Tensor, front: Tensor, indices: Sequence[Tensor], shape: tuple[int, ...]) -> Any:
    """Return the positions in the memory of `x` of all elements that are written; -1 where an index is out of range."""
    count, strides = len(indices), front.ref.spec.strides
    first = front.ref.offset - x.ref.offset
    rest = front.shape[count:]
    wrapped = [wrap_index(i, n) for i, n in zip(indices, front.shape[:count], strict=True)]
    start = fold(lambda a, b: a + b, (w * s for w, s in zip(wrapped, strides[:count], strict=True))) + first
    start = _broadcast_to(start, shape)
    missing = _broadcast_to(_less(fold(_minimum, wrapped), 0), shape)
    lead = (*shape, *(1,) * len(rest))
    places = _reshape(start, lead)
    for k, (n, stride) in enumerate(zip(rest, strides[count:], strict=True)):
        along = _arange(0, n, 1, dtypes.int64, device=x.device) * stride
        places = places + _reshape(along, tuple(n if i == k else 1 for i in range(len(rest))))
    places = _where(_reshape(missing, lead), -1, places)
    return _reshape(_broadcast_to(places, (*shape, *rest)), (-1,))
