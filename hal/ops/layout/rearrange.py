"""Composites under the names of NumPy and PyTorch that reverse, rotate, tile, join and cut tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.hal.layout import normalize_axes, normalize_axis
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.axes import flip, transpose
from polyhal.hal.ops.layout.regions import concat as _concat
from polyhal.hal.ops.layout.regions import copy as _copy
from polyhal.hal.ops.layout.regions import split
from polyhal.hal.ops.layout.views import broadcast_to, permute
from polyhal.hal.ops.layout.views import contiguous as _contiguous
from polyhal.hal.ops.layout.views import reshape as _reshape
from polyhal.hal.ops.tensor_like import TensorLike


@composite(method=False, returns=Returns.COPY)
def clone(x: TensorLike, *, memory_format: Any = None) -> Any:
    """A copy in new memory; gradients flow through it. `memory_format` is a no-op: strides belong to the device."""
    return _copy(x)


@composite(extends=True, returns=Returns.EITHER)
def contiguous(x: TensorLike, *, memory_format: Any = None) -> Any:
    """The tensor in row-major order, itself if it already is. `memory_format` is a no-op: strides belong to the device."""
    return x if x.spec.is_contiguous else _contiguous(x)


@composite(extends=True, returns=Returns.EITHER)
def reshape(x: TensorLike, shape: Sequence[int], *, copy: bool | None = None) -> Any:
    """The elements in row-major order in another shape, where -1 stands for one length. A view if the strides allow it.

    With `copy` always in new memory; with `copy=False` always a view. Raises ValueError where only a copy is possible.

    >>> polyhal.reshape(polyhal.arange(4), (2, -1)).tolist()
    [[0, 1], [2, 3]]
    """
    out = _reshape(x, shape)
    records = dispatch.thread.executor.recorder is not None  # what is being recorded has no memory
    if copy and (records or _shares_memory(x, out)):
        return _copy(out)
    if copy is False and not records and not _shares_memory(x, out):
        problem = f"shape {tuple(x.shape)} with strides {x.spec.strides} as {tuple(out.shape)} takes a copy"
        raise ValueError(message("reshape", problem, fix="leave copy=False out"))
    return out


def _shares_memory(x: Any, y: Any) -> bool:
    return x.real.buffer is y.real.buffer


@composite("cat", "concatenate", method=False, extends=True)
def concat(xs: Sequence[TensorLike], axis: int | None = 0) -> Any:
    """Tensors joined along an existing axis; with None, their elements in row-major order along one axis.

    Vectors without elements fit tensors of any shape, as in PyTorch.

    >>> polyhal.concat([polyhal.tensor([[1, 2]]), polyhal.tensor(3)], axis=None).tolist()
    [1, 2, 3]
    """
    return _concat([ravel(x) for x in xs], 0) if axis is None else _concat(xs, axis)


@composite(returns=Returns.EITHER)
def ravel(x: TensorLike) -> Any:
    """The elements in row-major order along one axis."""
    return _reshape(x, (math.prod(x.shape),))


@composite(returns=Returns.VIEW, in_place=True)
def t(x: Any) -> Any:
    """The transpose of a matrix; a vector or a number as it is. Raises ValueError for more than two axes."""
    if x.ndim > 2:
        raise ValueError(f"[t] a tensor of shape {x.shape} is no matrix; use transpose or permute")
    return permute(x, tuple(reversed(range(x.ndim))))


@composite("swapdims", returns=Returns.VIEW, in_place=True)
def swapaxes(x: TensorLike, axis0: int, axis1: int) -> Any:
    """The tensor with two axes exchanged."""
    return transpose(x, axis0, axis1)


@composite(returns=Returns.COPY)
def fliplr(x: TensorLike) -> Any:
    """The tensor with the elements of its second axis in reverse order."""
    return flip(x, 1)


@composite(returns=Returns.COPY)
def flipud(x: TensorLike) -> Any:
    """The tensor with the elements of its first axis in reverse order."""
    return flip(x, 0)


@composite(returns=Returns.COPY)
def rot90(x: TensorLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """The tensor turned by 90 degrees `k` times, from the first of two axes towards the second.

    Raises ValueError if both axes are one.
    """
    a, b = (normalize_axis(i, x.ndim) for i in axes)
    if a == b:
        raise ValueError(f"[rot90] axes {tuple(axes)} are one axis; expected two")
    turned = x if k % 2 == 0 else transpose(x, a, b)
    return flip(turned, ((), a, (a, b), b)[k % 4]) if k % 4 else x


@composite(returns=Returns.COPY)
def roll(
    x: TensorLike,
    shift: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    dims: int | Sequence[int] | None = None,
) -> Any:
    """The tensor with its elements moved along axes by `shift`, those beyond the end to the front; without axes, in a row.

    Raises ValueError unless there are as many shifts as axes.

    >>> polyhal.roll(polyhal.tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    axis = dims if axis is None else axis
    if axis is None:
        if not isinstance(shift, int):
            (shift,) = shift
        return _reshape(roll(ravel(x), shift, 0), x.shape)
    moves = (shift,) if isinstance(shift, int) else tuple(shift)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if len(moves) != len(axes):
        raise ValueError(f"[roll] {len(moves)} shifts for {len(axes)} axes")
    if x.ndim == 0:
        return x
    for move, a in zip(moves, axes, strict=True):
        length = x.shape[normalize_axis(a, x.ndim)]
        if length and move % length:
            front, back = split(x, (length - move % length, move % length), a)
            x = _concat([back, front], a)
    return x


@composite("unstack", returns=Returns.VIEW)
def unbind(x: TensorLike, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis, without it.

    >>> [row.tolist() for row in polyhal.unbind(polyhal.tensor([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    at = normalize_axis(axis, x.ndim)
    return tuple(x[(slice(None),) * at + (i,)] for i in range(x.shape[at]))


@composite(returns=Returns.VIEW)
def unflatten(x: TensorLike, axis: int, sizes: Sequence[int]) -> Any:
    """The tensor with one axis made several of lengths `sizes`, where one may be -1."""
    at = normalize_axis(axis, x.ndim)
    lengths = tuple(sizes)
    if -1 in lengths:
        known = -math.prod(lengths)
        lengths = tuple(x.shape[at] // known if n == -1 and known else n for n in lengths)
    return _reshape(x, (*x.shape[:at], *lengths, *x.shape[at + 1 :]))


@composite(returns=Returns.VIEW)
def expand_as(x: TensorLike, other: TensorLike) -> Any:
    """The tensor broadcast to the shape of another."""
    return broadcast_to(x, other.shape)


@composite(returns=Returns.EITHER)
def reshape_as(x: TensorLike, other: TensorLike) -> Any:
    """The tensor reshaped to the shape of another."""
    return _reshape(x, other.shape)


@composite(returns=Returns.EITHER)
def view_as(x: TensorLike, other: TensorLike) -> Any:
    """The tensor reshaped to the shape of another."""
    return _reshape(x, other.shape)


@composite(returns=Returns.COPY)
def tile(x: TensorLike, dims: Sequence[int]) -> Any:
    """The tensor repeated `dims[i]` times along axis i, counted from the last axis if `dims` is shorter.

    >>> polyhal.tile(polyhal.tensor([1, 2]), (2,)).tolist()
    [1, 2, 1, 2]
    """
    counts = (dims,) if isinstance(dims, int) else tuple(dims)
    ndim = max(len(counts), x.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + tuple(x.shape)
    pairs = [n for count, length in zip(counts, shape, strict=True) for n in (count, length)]
    spread = broadcast_to(_reshape(x, tuple(n for length in shape for n in (1, length))), tuple(pairs))
    return _reshape(spread, tuple(c * n for c, n in zip(counts, shape, strict=True)))


# --- joining and cutting --------------------------------------------------------------------------------------------


def _with_axes(x: TensorLike, ndim: int) -> Any:
    return x if x.ndim >= ndim else _reshape(x, (1,) * (ndim - x.ndim) + tuple(x.shape))


def _depth(x: TensorLike) -> Any:
    """At least three axes, the last of them new."""
    matrix = _with_axes(x, 2)
    return matrix if matrix.ndim > 2 else _reshape(matrix, (*matrix.shape, 1))


@composite(method=False)
def hstack(xs: Sequence[TensorLike]) -> Any:
    """Tensors joined along their second axis, vectors along their only one.

    >>> polyhal.hstack([polyhal.tensor([1, 2]), polyhal.tensor([3])]).tolist()
    [1, 2, 3]
    """
    rows = [_with_axes(x, 1) for x in xs]
    return _concat(rows, 0 if rows[0].ndim == 1 else 1)


@composite("row_stack", method=False)
def vstack(xs: Sequence[TensorLike]) -> Any:
    """Tensors joined along their first axis, vectors as rows.

    >>> polyhal.vstack([polyhal.tensor([1, 2]), polyhal.tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return _concat([_with_axes(x, 2) for x in xs], 0)


@composite(method=False)
def dstack(xs: Sequence[TensorLike]) -> Any:
    """Tensors joined along their third axis."""
    return _concat([_depth(x) for x in xs], 2)


@composite(method=False)
def column_stack(xs: Sequence[TensorLike]) -> Any:
    """Tensors joined along their second axis, vectors as columns."""
    return _concat([x if x.ndim > 1 else _reshape(x, (math.prod(x.shape), 1)) for x in xs], 1)


@composite(returns=Returns.VIEW)
def tensor_split(x: TensorLike, indices_or_sections: Any, axis: int = 0) -> tuple[Any, ...]:
    """The tensor cut into a number of nearly equal parts along an axis, or before each of several positions.

    Raises ValueError for less than one part.
    """
    at = normalize_axis(axis, x.ndim)
    length = x.shape[at]
    cut = indices_or_sections.tolist() if hasattr(indices_or_sections, "tolist") else indices_or_sections
    if isinstance(cut, int):
        if cut < 1:
            raise ValueError(f"[tensor_split] {cut} parts; expected at least 1")
        small, more = divmod(length, cut)
        return split(x, [small + (i < more) for i in range(cut)], at)
    lead = (slice(None),) * at
    return tuple(x[(*lead, slice(a, b))] for a, b in zip((0, *cut), (*cut, length), strict=True))


@composite(returns=Returns.VIEW)
def hsplit(x: TensorLike, indices_or_sections: Any) -> tuple[Any, ...]:
    """The tensor cut along its second axis, a vector along its only one; as `tensor_split`."""
    return _even_split("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1)


@composite(returns=Returns.VIEW)
def vsplit(x: TensorLike, indices_or_sections: Any) -> tuple[Any, ...]:
    """The tensor cut along its first axis; as `tensor_split`."""
    return _even_split("vsplit", x, indices_or_sections, 0)


@composite(returns=Returns.VIEW)
def dsplit(x: TensorLike, indices_or_sections: Any) -> tuple[Any, ...]:
    """The tensor cut along its third axis; as `tensor_split`."""
    return _even_split("dsplit", x, indices_or_sections, 2)


def _even_split(function: str, x: TensorLike, cut: TensorLike, axis: int) -> tuple[Any, ...]:
    normalize_axes(axis, x.ndim)
    if isinstance(cut, int) and (cut < 1 or x.shape[axis] % cut):
        raise ValueError(f"[{function}] an axis of length {x.shape[axis]} has no {cut} equal parts")
    return tensor_split(x, cut, axis)
