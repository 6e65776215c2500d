"""Operands of one shape as rows along one axis, with the other axes merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined

_AXES = 3


@dataclass(frozen=True, slots=True)
class StridedRows:
    """`count` rows of equal length over three outer axes; the last outer axis varies fastest."""

    count: int
    length: int
    outer: tuple[int, int, int]
    """Lengths of the outer axes, padded in front with 1."""
    strides: tuple[tuple[int, int, int], ...]
    """Strides of the outer axes, per operand."""
    steps: tuple[int, ...]
    """Stride along a row, per operand."""

    @property
    def contiguous(self) -> bool:
        """True if rows are contiguous in every operand."""
        return all(step == 1 for step in self.steps)


def rows_along(specs: Sequence[Spec], axis: int) -> StridedRows | Declined:
    """Merge the other axes of operands of equal shape. Declines if more than three remain."""
    shape = specs[0].shape or (1,)
    strides = [s.strides or (1,) for s in specs]
    axis = axis if specs[0].shape else 0
    length = shape[axis]
    outer = tuple(n for i, n in enumerate(shape) if i != axis)
    lengths, steps = collapse(outer, tuple(tuple(t for i, t in enumerate(s) if i != axis) for s in strides))
    if len(lengths) > _AXES:
        return Declined(f"{len(lengths)} outer axes remain after merging; the kernels support {_AXES}")
    if length >= 1 << 31:
        return Declined("the axis is longer than 2^31")
    fill = _AXES - len(lengths)
    a, b, c = (1,) * fill + lengths
    padded = [(0,) * fill + s for s in steps]
    along = tuple(s[axis] if length > 1 else 1 for s in strides)
    return StridedRows(math.prod(lengths), length, (a, b, c), tuple((s[0], s[1], s[2]) for s in padded), along)
