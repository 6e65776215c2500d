"""Composites that move, add, drop, merge or reverse axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axes, normalize_axis
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.tensor_like import TensorLike


@composite(returns=Returns.VIEW, in_place=True)
def transpose(x: TensorLike, axis0: int = -2, axis1: int = -1) -> Any:
    """The tensor with two axes exchanged, the last two by default.

    >>> polyhal.transpose(polyhal.ones(2, 3, 4), 0, 2).shape
    (4, 3, 2)
    """
    if x.ndim == 0 and axis0 in (0, -1) and axis1 in (0, -1):
        return permute(x, ())
    axes = list(range(x.ndim))
    a, b = normalize_axis(axis0, x.ndim), normalize_axis(axis1, x.ndim)
    axes[a], axes[b] = b, a
    return permute(x, tuple(axes))


@composite("linalg.", returns=Returns.VIEW)
def matrix_transpose(x: TensorLike) -> Any:
    """The matrices (..., m, n) transposed. Raises ShapeError for fewer than two axes."""
    if x.ndim < 2:
        raise ShapeError(message("matrix_transpose", f"got shape {tuple(x.shape)}", expected="two axes at least"))
    return transpose(x)


@composite(returns=Returns.VIEW)
def permute_dims(x: TensorLike, axes: Sequence[int]) -> Any:
    """The tensor with axis `axes[i]` at position i."""
    return permute(x, tuple(axes))


@composite("movedim", returns=Returns.VIEW)
def moveaxis(x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """The tensor with axis `source`, or each of several, moved to position `destination`.

    Raises ValueError unless there are as many different sources as destinations.

    >>> polyhal.moveaxis(polyhal.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    sources, destinations = (_numbers(axes, x.ndim) for axes in (source, destination))
    if len(sources) != len(destinations) or len({*sources}) != len(sources) or len({*destinations}) != len(sources):
        raise ValueError(f"[moveaxis] source {source}, destination {destination}; expected as many different axes")
    rest = iter(a for a in range(x.ndim) if a not in sources)
    moved = dict(zip(destinations, sources, strict=True))
    return permute(x, tuple(moved[i] if i in moved else next(rest) for i in range(x.ndim)))


def _numbers(axes: int | Sequence[int], ndim: int) -> list[int]:
    """Axes counted from the front, in the order given; 0 and -1 name none of a tensor without axes."""
    several = (axes,) if isinstance(axes, int) else tuple(axes)
    return [] if ndim == 0 and several in ((0,), (-1,)) else [normalize_axis(a, ndim) for a in several]


@composite(returns=Returns.VIEW, in_place=True)
def squeeze(x: TensorLike, axis: int | tuple[int, ...] | None = None) -> Any:
    """The tensor without the given axes of length 1, by default all of them.

    Raises ValueError for an axis of another length.

    >>> polyhal.squeeze(polyhal.ones(2, 1, 3), 1).shape
    (2, 3)
    """
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    axes = normalize_axes(axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"[squeeze] axis {a} of shape {x.shape} has length {x.shape[a]}; expected 1")
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


@composite(returns=Returns.VIEW, in_place=True, aten=".default")
def unsqueeze(x: Any, axis: int) -> Any:
    """The tensor with a new axis of length 1 at position `axis`.

    >>> polyhal.unsqueeze(polyhal.ones(2, 3), 0).shape
    (1, 2, 3)
    """
    at = normalize_axis(axis, x.ndim + 1)
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


@composite(returns=Returns.VIEW)
def expand_dims(x: Any, axis: int | Sequence[int] = 0) -> Any:
    """The tensor with a new axis of length 1 at position `axis`, or at each of several positions, of the result.

    >>> polyhal.expand_dims(polyhal.ones(2, 3), axis=0).shape
    (1, 2, 3)
    """
    several = (axis,) if isinstance(axis, int) else tuple(axis)
    places = normalize_axes(several, x.ndim + len(several))
    lengths = iter(x.shape)
    return reshape(x, tuple(1 if i in places else next(lengths) for i in range(x.ndim + len(places))))


@composite(returns=Returns.EITHER)
def flatten(x: TensorLike, start_axis: int = 0, end_axis: int = -1) -> Any:
    """The tensor with axes `start_axis` to `end_axis` (inclusive) merged into one; itself if that is one axis already.

    >>> polyhal.flatten(polyhal.ones(2, 3, 4), 1).shape
    (2, 12)
    """
    if x.ndim == 0:
        return reshape(x, (1,))
    a, b = normalize_axis(start_axis, x.ndim), normalize_axis(end_axis, x.ndim)
    return x if a == b else reshape(x, (*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


@composite(returns=Returns.COPY)
def flip(
    x: TensorLike, axis: int | Sequence[int] | None = None, *more: int, dims: int | Sequence[int] | None = None
) -> Any:
    """The tensor with the elements of the given axes in reverse order, of all by default: `flip(x, (0, 1))`.

    >>> polyhal.flip(polyhal.tensor([1, 2, 3])).tolist()
    [3, 2, 1]
    """
    chosen = (axis, *more) if isinstance(axis, int) else axis if dims is None else dims
    axes = normalize_axes(chosen if chosen is None or isinstance(chosen, int) else tuple(chosen), x.ndim)
    starts = tuple(max(n - 1, 0) if i in axes else 0 for i, n in enumerate(x.shape))
    return slice_(x, starts, x.shape, tuple(-1 if i in axes else 1 for i in range(x.ndim)))
