"""How operands of the indexing ops lie: an index as one evenly spaced line, a tensor as (outer, axis, inner)."""

from __future__ import annotations

from polyhal.hal.layout import Spec, collapse


def line_step(spec: Spec) -> int | None:
    """The distance between neighbours when the whole spec is numbered in row-major order, or None if it varies."""
    lengths, (steps,) = collapse(spec.shape, (spec.strides,))
    return steps[0] if len(lengths) == 1 else None


def step_of_rows(spec: Spec) -> int | None:
    """The distance between neighbouring rows along the last axis, or None if it varies."""
    lengths, (steps,) = collapse(spec.shape[:-1], (spec.strides[:-1],))
    return steps[0] if len(lengths) == 1 else None


def thirds(spec: Spec, axis: int) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Lengths and strides as (outer, axis, inner), or None where the axes on one side cannot be merged."""
    outer, (outer_steps,) = collapse(spec.shape[:axis], (spec.strides[:axis],))
    inner, (inner_steps,) = collapse(spec.shape[axis + 1 :], (spec.strides[axis + 1 :],))
    if len(outer) > 1 or len(inner) > 1:
        return None
    return (outer[0], spec.shape[axis], inner[0]), (outer_steps[0], spec.strides[axis], inner_steps[0])
