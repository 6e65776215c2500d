"""Batches of matrices: merged batch axes, and the strides of each operand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined

_AXES = 3
SMALL = 64
"""The most rows and columns of a matrix that one group of work-items keeps in local memory."""

PANEL = 32
"""The most columns of a tall panel of a large matrix that one group factors."""


class Matrices(NamedTuple):
    """Strides of an operand: of the merged batch axes, between rows, and between columns."""

    batch: tuple[int, int, int]
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class MatrixBatch:
    """`count` matrices over up to three batch axes; the last axis varies fastest."""

    count: int
    axes: tuple[int, int, int]
    """Lengths of the batch axes, padded in front with 1."""
    operands: tuple[Matrices, ...]


def matrix_batch(operands: Sequence[Spec], batch: tuple[int, ...]) -> MatrixBatch | Declined:
    """Merge the batch axes of operands, which broadcast to `batch`. Declines if more than three remain."""
    strides = [_broadcast_strides(s, batch) for s in operands]
    lengths, steps = collapse(batch, tuple(strides))
    if len(lengths) > _AXES:
        return Declined(f"{len(lengths)} batch axes remain after merging; the kernels support {_AXES}")
    fill = _AXES - len(lengths)
    a, b, c = (1,) * fill + lengths
    padded = [(0,) * fill + s for s in steps]
    count = math.prod(lengths)
    if count >= 1 << 31:
        return Declined("the batch has 2^31 matrices or more")
    matrices = (Matrices((p[0], p[1], p[2]), *s.strides[-2:]) for p, s in zip(padded, operands, strict=True))
    return MatrixBatch(count, (a, b, c), tuple(matrices))


def transposed(spec: Spec) -> Spec:
    """Return the spec of the transposed matrices."""
    *batch, m, n = spec.shape
    *outer, row, column = spec.strides
    return Spec(spec.dtype, (*batch, n, m), (*outer, column, row), spec.aligned)


def _broadcast_strides(spec: Spec, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of an operand's batch axes, 0 where it has one matrix for all."""
    shape, strides = spec.shape[:-2], spec.strides[:-2]
    missing = len(batch) - len(shape)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
