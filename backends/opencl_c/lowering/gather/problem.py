"""Rows that are added by index, and the arguments of their kernels."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.launch import Strided, Tensor
from polyhal.backends.opencl_c.language import ATOMICS, FLOAT_ATOMICS
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

ATOMIC = (dtypes.float32, dtypes.int32, dtypes.uint32)
"""Dtypes with atomic addition."""


@dataclass(frozen=True, slots=True)
class RowIndex:
    """The index: one per row of the source."""

    place: int
    """Position in the argument list."""
    dtype: DType
    count: int
    step: int
    """Stride, in elements."""

    def args(self) -> dict[str, Strided]:
        """Return the kernel argument `index`."""
        return {"index": Strided(Tensor(self.place), {"step": self.step})}


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows to add: one per index. Strides are in elements."""

    place: int
    """Position in the argument list."""
    dtype: DType
    width: int
    row: int
    column: int
    aligned: bool

    def args(self) -> dict[str, Strided]:
        """Return the kernel argument `source`."""
        return {"source": Strided(Tensor(self.place), {"row": self.row, "column": self.column})}


@dataclass(frozen=True, slots=True)
class TargetRows:
    """The contiguous rows that are added to."""

    place: int
    """Position in the argument list."""
    dtype: DType
    rows: int
    aligned: bool


@dataclass(frozen=True, slots=True)
class RowScatter:
    """out[index[i], :] += source[i, :]. The argument list has three tensors; workspace follows."""

    index: RowIndex
    source: SourceRows
    out: TargetRows


FIRST_WORKSPACE = 3


def atomic_definitions(index: DType, dtype: DType, float_atomics: str) -> dict[str, str | int | bool]:
    """Return the definitions for kernels with lib/atomic_add.h; `float_atomics` is the device's feature."""
    is_float = dtype.kind == "float"
    return {
        "DTYPE": dtype.name,
        "INDEX_DTYPE": index.name,
        "IS_FLOAT": is_float,
        FLOAT_ATOMICS: ATOMICS[float_atomics] if is_float else 0,
    }
