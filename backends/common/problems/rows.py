"""Rows: operands of one shape walked along one axis, with the other axes merged and numbered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined

_AXES = 3


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of equal length, numbered over three axes, the last one fastest."""

    count: int
    length: int
    outer: tuple[int, int, int]
    """Lengths of the axes over which rows are numbered; absent ones come first and have length 1."""
    strides: tuple[tuple[int, int, int], ...]
    """For each operand, on those axes."""
    steps: tuple[int, ...]
    """For each operand, from one element of a row to the next."""

    @property
    def contiguous(self) -> bool:
        """Whether the elements of a row are neighbours in every operand."""
        return all(step == 1 for step in self.steps)


def walk(specs: Sequence[Spec], axis: int) -> Rows | Declined:
    """The rows along `axis` of operands of equal shape."""
    shape = specs[0].shape or (1,)
    strides = [s.strides or (1,) for s in specs]
    axis = axis if specs[0].shape else 0
    length = shape[axis]
    outer = tuple(n for i, n in enumerate(shape) if i != axis)
    lengths, steps = collapse(outer, tuple(tuple(t for i, t in enumerate(s) if i != axis) for s in strides))
    if len(lengths) > _AXES:
        return Declined(f"{len(lengths)} axes besides the one worked on cannot be merged; the kernels take {_AXES}")
    if length >= 1 << 31:
        return Declined("the axis is longer than 2^31")
    fill = _AXES - len(lengths)
    a, b, c = (1,) * fill + lengths
    padded = [(0,) * fill + s for s in steps]
    along = tuple(s[axis] if length > 1 else 1 for s in strides)
    return Rows(math.prod(lengths), length, (a, b, c), tuple((s[0], s[1], s[2]) for s in padded), along)
