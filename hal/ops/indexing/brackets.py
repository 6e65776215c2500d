"""Bracket notation: `x[...]` with integers, slices, None and an ellipsis, as one slice and one reshape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape


@dataclass(slots=True)
class _Index:
    """The slice of each axis, and the shape of the result, whose integer axes are dropped and None axes added."""

    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)

    @property
    def axis(self) -> int:
        """The next axis of the indexed tensor."""
        return len(self.starts)

    def add(self, start: int, length: int, step: int, *, keep: bool = True) -> None:
        """Index the next axis."""
        self.starts.append(start)
        self.lengths.append(length)
        self.steps.append(step)
        if keep:
            self.shape.append(length)


def basic_index(x: Any, items: tuple[Any, ...]) -> Any:
    """`x[items]` for integers, slices, None and an ellipsis, as views. Raises IndexError for items that do not fit."""
    indexed = sum(1 for item in items if item is not None and item is not Ellipsis)
    if indexed > x.ndim:
        raise IndexError(f"[getitem] {indexed} indices for a tensor of {x.ndim} axes")
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("[getitem] more than one ellipsis")
    if Ellipsis not in items:
        items = (*items, Ellipsis)
    index = _Index()
    for item in items:
        if item is None:
            index.shape.append(1)
        elif item is Ellipsis:
            for _ in range(x.ndim - indexed):
                index.add(0, x.shape[index.axis], 1)
        elif isinstance(item, slice):
            start, stop, step = item.indices(x.shape[index.axis])
            length = len(range(start, stop, step))
            index.add(start if length else 0, length, step)
        else:
            index.add(_position(item, index.axis, x.shape[index.axis]), 1, 1, keep=False)
    whole = tuple(index.lengths) == x.shape and all(s == 1 for s in index.steps)
    out = x if whole else slice_(x, tuple(index.starts), tuple(index.lengths), tuple(index.steps))
    return out if out.shape == tuple(index.shape) else reshape(out, tuple(index.shape))


def _position(item: Any, axis: int, length: int) -> int:
    i = int(item)
    if not -length <= i < length:
        raise IndexError(f"[getitem] index {i} is out of range for axis {axis} of length {length}")
    return i % length
