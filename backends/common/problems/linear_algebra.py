"""Batches of matrices: merged batch axes, and the strides of each operand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polyhal.backends.common.launching.geometry import power_of_two_at_least
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined

_AXES = 3
SMALL = 64
"""The most rows and columns of a matrix that one group of work-items keeps in local memory."""

PANEL = 32
"""The most columns of a tall panel of a large matrix that one group factors."""


CHECKED = Declined("its program checks the result")
"""For ops that raise an error for some values: a launch does not read its results."""
_MIN_SIZE = 8


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


def from_the_end(operand: Matrices, *, columns_too: bool) -> tuple[Matrices, int]:
    """Return strides that count rows, and with `columns_too` columns, from the end, and the step of the start per row."""
    column = -operand.column if columns_too else operand.column
    return Matrices(operand.batch, -operand.row, column), operand.row + (operand.column if columns_too else 0)


def size_class(*lengths: int) -> int:
    """Return the number of rows or columns for which a kernel is compiled: powers of two, so that programs are few."""
    return max(_MIN_SIZE, power_of_two_at_least(max(lengths)))


def tile_bytes(size: int, dtype: DType) -> int:
    """Return the local memory of a matrix with padded rows."""
    return size * (size + 1) * dtype.itemsize


def require_small(*lengths: int) -> Declined | None:
    """Return the reason why matrices are not small; None if they are."""
    if max(lengths) > SMALL:
        return Declined(f"matrices of {' x '.join(map(str, lengths))}: one group holds up to {SMALL} rows and columns")
    return None


def _broadcast_strides(spec: Spec, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of an operand's batch axes, 0 where it has one matrix for all."""
    shape, strides = spec.shape[:-2], spec.strides[:-2]
    missing = len(batch) - len(shape)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
