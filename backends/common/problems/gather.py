"""Operands of the indexing ops: an index as one strided axis, a tensor as (outer, axis, inner)."""

from __future__ import annotations

from typing import NamedTuple

from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec

_MAX_COMPARED = 128
"""Largest number of indices for a kernel that compares each one with all later ones, to find the last index of each row."""


def flat_stride(spec: Spec) -> int | None:
    """Return the stride of all elements in row-major order, or None if it varies."""
    lengths, (steps,) = collapse(spec.shape, (spec.strides,))
    return steps[0] if len(lengths) == 1 else None


def row_stride(spec: Spec) -> int | None:
    """Return the stride between consecutive rows along the last axis, or None if it varies."""
    lengths, (steps,) = collapse(spec.shape[:-1], (spec.strides[:-1],))
    return steps[0] if len(lengths) == 1 else None


def outer_axis_inner(spec: Spec, axis: int) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Return lengths and strides as (outer, axis, inner), or None if the axes before or after `axis` cannot be merged."""
    outer, (outer_steps,) = collapse(spec.shape[:axis], (spec.strides[:axis],))
    inner, (inner_steps,) = collapse(spec.shape[axis + 1 :], (spec.strides[axis + 1 :],))
    if len(outer) > 1 or len(inner) > 1:
        return None
    return (outer[0], spec.shape[axis], inner[0]), (outer_steps[0], spec.strides[axis], inner_steps[0])


class RowUpdate(NamedTuple):
    """Operands of a kernel that replaces rows of a table in place, by index, with the rows of a source."""

    numbers: Spec
    """Indices of the replaced rows."""
    step: int
    """Stride of the index."""
    source: Spec
    row: int
    column: int
    """Stride of the source between columns."""
    distinct: bool
    """True if all indices are distinct."""

    @property
    def items(self) -> int:
        """Number of written elements."""
        return self.source.size

    @classmethod
    def of(cls, inputs: tuple[InputSpec | None, ...], distinct: bool) -> RowUpdate | Declined:
        """Return the update of an op (table, index, source), or the reason why a kernel that compares indices cannot run it."""
        _, index, source = inputs
        if not isinstance(index, Spec) or not isinstance(source, Spec):
            return Declined("an operand is a number")
        if not distinct and index.size > _MAX_COMPARED:
            return Declined(f"more than {_MAX_COMPARED} indices, which may contain a row twice")
        (step,), (row, column) = index.strides, source.strides
        return cls(index, step, source, row, column, distinct or index.size == 1)
