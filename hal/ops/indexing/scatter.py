"""PyTorch's `scatter`, `scatter_add` and `scatter_reduce`: elements written along an axis by number.

In all of them `index` may be shorter than `src` and, outside `axis`, than `x`; elements beyond it are left out. Negative
numbers wrap. Numbers out of range raise IndexError on CPUs and in debug mode (`polyhal.debug`), and are skipped elsewhere.
"""

from __future__ import annotations

from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.indexing.along_axis import scatter_along_axis
from polyhal.hal.ops.indexing.brackets import basic_index
from polyhal.hal.ops.indexing.range_errors import names_range_errors
from polyhal.hal.ops.indexing.row_updates import wrap_index
from polyhal.hal.ops.indexing.table_updates import TableUpdate, table_update, updated
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Numeric, TensorLike

_OF_SCATTER = {None: "replace", "add": "sum", "multiply": "prod"}


@composite(in_place=True, aten=".value .value_reduce .reduce")
@names_range_errors
def scatter(
    x: TensorLike,
    axis: int,
    index: TensorLike,
    src: TensorLike | float | None = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Any:
    """`x` with `out[index[i, j], j] = src[i, j]` for axis 0; of several writers the last in row-major order wins.

    `src` may be a number, also spelled `value`. `reduce` "add" or "multiply" combines elements. Compare `torch.scatter`.
    Raises ShapeError for shapes that do not fit and ValueError for another reduction.
    """
    if reduce not in _OF_SCATTER:
        raise ValueError(message("scatter", f"reduce is {reduce!r}", expected="'add', 'multiply' or None"))
    return _scattered("scatter", x, axis, index, value if src is None else src, _OF_SCATTER[reduce], True)


@table_update
def _scatter(
    x: TensorLike,
    axis: int,
    index: TensorLike,
    src: TensorLike | float | None = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> TableUpdate | None:
    if reduce not in _OF_SCATTER:
        raise ValueError(message("scatter", f"reduce is {reduce!r}", expected="'add', 'multiply' or None"))
    return _update("scatter", x, axis, index, value if src is None else src, _OF_SCATTER[reduce], True)


@composite(in_place=True)
@names_range_errors
def scatter_add(x: TensorLike, axis: int, index: TensorLike | int, src: TensorLike | int) -> Any:
    """`x` with `src[i, j]` added to `out[index[i, j], j]` for axis 0. Compare `torch.scatter_add`. Raises ShapeError."""
    return _scattered("scatter_add", x, axis, index, src, "sum", True)


@table_update
def _scatter_add(x: TensorLike, axis: int, index: TensorLike, src: TensorLike) -> TableUpdate | None:
    return _update("scatter_add", x, axis, index, src, "sum", True)


@composite(in_place=True, aten=".two")
@names_range_errors
def scatter_reduce(
    x: TensorLike, axis: int, index: TensorLike | int, src: TensorLike | int, reduce: str, *, include_self: bool = True
) -> Any:
    """`x` with `out[index[i, j], j]` combined with all its `src[i, j]` for axis 0, by sum, mean, prod, amax or amin.

    Without `include_self` the elements of `x` that are named do not count. The gradient of an extreme is shared evenly by all
    elements that reach it. Compare `torch.scatter_reduce`. Raises ShapeError, and ValueError for another reduction.
    """
    return _scattered("scatter_reduce", x, axis, index, src, reduce, include_self)


@table_update
def _scatter_reduce(
    x: TensorLike, axis: int, index: TensorLike, src: TensorLike, reduce: str, *, include_self: bool = True
) -> TableUpdate | None:
    return _update("scatter_reduce", x, axis, index, src, reduce, include_self)


def _scattered(name: str, x: Any, axis: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    if reduce == "sum" and include_self and x.ndim > 1 and x.dtype.kind == "float" and index.size:
        axis = normalize_axis(axis, x.ndim)
        src = _source(x, index, src)
        _check(name, x, axis, index, src)
        if _spans(x, index, axis):
            src = basic_index(src, tuple(slice(0, n) for n in index.shape))
            src = src if src.dtype is x.dtype else src.cast(dtype=x.dtype)
            return scatter_along_axis(src, index, x, axis, x.shape[axis])
    return updated(x, _update(name, x, axis, index, src, reduce, include_self))


def _update(name: str, x: Any, axis: int, index: Any, src: Any, reduce: str, include_self: bool) -> TableUpdate | None:
    src = _source(x, index, src)
    x, index, src = (reshape(v, (1,)) if not v.ndim else v for v in (x, index, src))
    axis = normalize_axis(axis, x.ndim)
    if not index.size:
        return None
    _check(name, x, axis, index, src)
    src = basic_index(src, tuple(slice(0, n) for n in index.shape))
    rows, values = (reshape(v, (-1, 1)) for v in (x, src))
    if x.ndim == 1:
        return TableUpdate(name, rows, index, values, reduce, include_self, wraps=True)
    return TableUpdate(name, rows, _positions(index, x.shape, axis), values, reduce, include_self)


def _source(x: TensorLike, index: TensorLike, src: Numeric) -> Any:
    """Return the source, which may be a number, as a tensor."""
    return src if hasattr(src, "ref") else broadcast_to(full((), src, x.dtype, device=x.device), index.shape)


def _check(name: str, x: TensorLike, axis: int, index: TensorLike, src: Any) -> None:
    fits = index.ndim == x.ndim == src.ndim and all(
        m <= s and (k == axis or m <= n)
        for k, (n, m, s) in enumerate(zip(x.shape, index.shape, src.shape, strict=True))
    )
    if not fits:
        problem = f"the index {index.shape} does not fit x {x.shape} and src {src.shape}"
        raise ShapeError(message(name, problem, expected=f"at most src's lengths, and x's outside axis {axis}"))


def _spans(x: TensorLike, index: TensorLike, axis: int) -> bool:
    """Return whether the index covers all axes of `x` except `axis`."""
    return all(n == m for k, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if k != axis)


def _positions(index: TensorLike, shape: tuple[int, ...], axis: int) -> Any:
    """Row-major positions in a tensor of `shape`, flat; -1 for numbers out of range."""
    along = wrap_index(index, shape[axis])
    total, step = None, 1
    for i in reversed(range(len(shape))):
        if i == axis:
            part = along
        else:
            lengths = tuple(index.shape[i] if k == i else 1 for k in range(len(shape)))
            part = reshape(arange(0, index.shape[i], 1, dtypes.int64, device=index.device), lengths)
        part = part * step if step != 1 else part
        total = part if total is None else total + part
        step *= shape[i]
    return reshape(where(less(along, 0), -1, broadcast_to(total, index.shape)), (-1,))
