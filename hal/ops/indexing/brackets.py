"""Bracket notation: `x[...]` with integers, slices, None and an ellipsis, as one slice and one reshape."""

from __future__ import annotations

from typing import Any

from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape


def basic_index(x: Any, items: tuple[Any, ...]) -> Any:
    """`x[items]` for integers, slices, None and an ellipsis, as views. Raises IndexError for items that do not fit."""
    starts: list[int] = []
    lengths: list[int] = []
    steps: list[int] = []
    shape: list[int] = []
    for item in _without_ellipsis(items, x.ndim):
        if item is None:
            shape.append(1)
            continue
        n = x.shape[len(starts)]
        if isinstance(item, slice):
            start, stop, step = item.indices(n)
            length = len(range(start, stop, step))
            starts.append(start if length else 0)
            shape.append(length)
        else:
            length = step = 1
            starts.append(_position(item, len(starts), n))
        lengths.append(length)
        steps.append(step)
    kept_whole = tuple(lengths) == x.shape and all(s == 1 for s in steps)
    out = x if kept_whole else slice_(x, tuple(starts), tuple(lengths), tuple(steps))
    return out if out.shape == tuple(shape) else reshape(out, tuple(shape))


_EVERYTHING = slice(None)


def _without_ellipsis(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """The items with the ellipsis, implied at the end if absent, replaced by full slices."""
    indexed, at = 0, -1
    for i, item in enumerate(items):
        if item is Ellipsis:
            if at >= 0:
                raise IndexError("[getitem] more than one ellipsis")
            at = i
        elif item is not None:
            indexed += 1
    if indexed > ndim:
        raise IndexError(f"[getitem] {indexed} indices for a tensor of {ndim} axes")
    rest = (_EVERYTHING,) * (ndim - indexed)
    return (*items, *rest) if at < 0 else (*items[:at], *rest, *items[at + 1 :])


def _position(item: int, axis: int, length: int) -> int:
    i = int(item)
    if not -length <= i < length:
        raise IndexError(f"[getitem] index {i} is out of range for axis {axis} of length {length}")
    return i % length
