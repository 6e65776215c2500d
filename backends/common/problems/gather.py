"""Operands of the indexing ops: an index as one strided axis, a tensor as (outer, axis, inner)."""

from __future__ import annotations

from polyhal.hal.layout import Spec, collapse


def flat_stride(spec: Spec) -> int | None:
    """Return the stride of all elements in row-major order, or None if it varies."""
    lengths, (steps,) = collapse(spec.shape, (spec.strides,))
    return steps[0] if len(lengths) == 1 else None


def row_stride(spec: Spec) -> int | None:
    """Return the stride between consecutive rows along the last axis, or None if it varies."""
    lengths, (steps,) = collapse(spec.shape[:-1], (spec.strides[:-1],))
    return steps[0] if len(lengths) == 1 else None


def outer_axis_inner(spec: Spec, axis: int) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Return lengths and strides as (outer, axis, inner), or None if the axes on one side cannot be merged."""
    outer, (outer_steps,) = collapse(spec.shape[:axis], (spec.strides[:axis],))
    inner, (inner_steps,) = collapse(spec.shape[axis + 1 :], (spec.strides[axis + 1 :],))
    if len(outer) > 1 or len(inner) > 1:
        return None
    return (outer[0], spec.shape[axis], inner[0]), (outer_steps[0], spec.strides[axis], inner_steps[0])
