"""PyTorch's `index_add`, `index_copy`, `index_fill`, `index_reduce`, `index_put` and `put`: slices and elements by number.

Negative numbers wrap. Numbers out of range raise IndexError on CPUs and in debug mode (`polyhal.debug`), and are skipped
elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.indexing.reduce_rows import reduce_rows
from polyhal.hal.ops.indexing.row_updates import wrap_index
from polyhal.hal.ops.indexing.rows import scatter_rows
from polyhal.hal.ops.indexing.take_along_axis import masked_fill
from polyhal.hal.ops.layout.axes import moveaxis
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import copy
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.logic import less


@composite()
def index_add(x: Any, axis: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """`x` with `alpha` times each slice of `source` along `axis` added to the slice that the vector `index` names.

    Compare `torch.index_add`. Raises ShapeError.
    """
    scaled = source if alpha == 1 and not isinstance(alpha, bool) else _scaled(source, alpha)
    return _updated("index_add", x, axis, index, scaled, "sum")


def _scaled(source: Any, alpha: Any) -> Any:
    if source.dtype.kind == "bool":
        return source if alpha else full(source.shape, False, dtypes.bool_, device=source.device)
    return source * alpha


@composite()
def index_copy(x: Any, axis: int, index: Any, source: Any) -> Any:
    """`x` with the slices along `axis` that the vector `index` names replaced by those of `source`; the last one wins.

    Compare `torch.index_copy`. Raises ShapeError.
    """
    return _updated("index_copy", x, axis, index, source, "replace")


@composite()
def index_reduce(x: Any, axis: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """`x` with the slices along `axis` that `index` names combined with those of `source`, by prod, mean, amax or amin.

    Without `include_self`, named slices of `x` do not count. Compare `torch.index_reduce`. Raises ShapeError, and ValueError
    for another reduction.
    """
    return _updated("index_reduce", x, axis, index, source, reduce, include_self)


@composite()
def index_fill(x: Any, axis: int, index: Any, value: Any) -> Any:
    """`x` with `value`, a number or a tensor without axes, in the slices along `axis` that the vector `index` names.

    Compare `torch.index_fill`.
    """
    if not x.ndim:
        return reshape(index_fill(reshape(x, (1,)), 0, index, value), ())
    axis = normalize_axis(axis, x.ndim)
    length = x.shape[axis]
    numbers = wrap_index(reshape(index, (-1,)), length)
    ones = full((numbers.shape[0], 1), 1, dtypes.int32, device=x.device)
    shape = tuple(length if k == axis else 1 for k in range(x.ndim))
    return masked_fill(x, reshape(less(0, scatter_rows(ones, numbers, length)), shape), value)


def _updated(name: str, x: Any, axis: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    shape = x.shape
    x = x if x.ndim else reshape(x, (1,))
    axis = normalize_axis(axis, x.ndim)
    front = moveaxis(x, axis, 0)
    length, rest = front.shape[0], front.shape[1:]
    count = index.size
    expected = tuple(count if k == axis else n for k, n in enumerate(x.shape))
    if source.shape != expected and not (source.size == count and math.prod(expected) == count and source.ndim <= 1):
        raise ShapeError(message(name, f"the source has shape {source.shape}", expected=str(expected)))
    if not x.size or not count:
        return reshape(copy(x), shape)
    rows = reshape(moveaxis(reshape(source, expected), axis, 0), (count, -1))
    numbers = wrap_index(reshape(index, (-1,)), length)
    out = reduce_rows(name, reshape(front, (length, -1)), numbers, rows, reduce, include_self)
    return reshape(moveaxis(reshape(out, (length, *rest)), 0, axis), shape)


@composite()
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """`x` with `x[indices] = values`, where the last of several writers wins, or with the sum of all added if they accumulate.

    `indices` holds tensors of integers and masks, and None for a whole axis; `values` is broadcast. Compare `torch.index_put`.
    """
    items = tuple(slice(None) if i is None else i for i in indices)
    # Positions count from 1, so that an index out of range, which reads 0 where it is not refused, names no element.
    numbers = reshape(arange(1, x.size + 1, 1, dtypes.int64, device=x.device), x.shape)
    return _put("index_put", x, numbers[items] - 1, values, accumulate)


@composite()
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """`x` with the elements that `index` names in row-major order replaced by those of `source`, or added to them.

    Compare `torch.put`. Raises ShapeError.
    """
    if source.size != index.size:
        raise ShapeError(message("put", f"{index.size} indices and {source.size} elements", expected="as many"))
    return _put("put", x, wrap_index(index, x.size), reshape(source, index.shape), accumulate)


def _put(name: str, x: Any, positions: Any, values: Any, accumulate: bool) -> Any:
    if not positions.size:
        return copy(x)
    rows = reshape(broadcast_to(values, positions.shape), (-1, 1))
    reduce = "sum" if accumulate else "replace"
    return reshape(reduce_rows(name, reshape(x, (-1, 1)), reshape(positions, (-1,)), rows, reduce), x.shape)
