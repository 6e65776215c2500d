"""Rows to be sorted, and how kernels are told of them."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.launch import Constant
from polyhal.backends.common.problems.rows import StridedRows
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType

X, VALUES, INDICES, FIRST_WORKSPACE = range(4)
"""Positions in the argument list."""


@dataclass(frozen=True, slots=True)
class Sorting:
    """Rows of x, of which the first `keep` elements in order are wanted, with their positions."""

    runtime: Runtime
    name: str
    found: StridedRows
    """x and both results, with as many elements to a row as are kept."""
    length: int
    step: int
    """Elements from one element of a row of x to the next."""
    dtype: DType
    descending: bool

    @property
    def rows(self) -> int:
        return self.found.count

    @property
    def keep(self) -> int:
        return self.found.length

    @property
    def definitions(self) -> dict[str, str | int | bool]:
        """What sort/items.h wants to know."""
        return {"DTYPE": self.dtype.name, "DESCENDING": self.descending}

    def numbers(self, length: int) -> list[Parameter]:
        """ROW_PARAMETERS, for rows of that length."""
        return [
            Constant(self.rows, "ulong"), Constant(length, "uint"), Constant(1, "uint"),
            Constant(self.found.outer[1], "uint"), Constant(self.found.outer[2], "uint"),
        ]  # fmt: skip

    def strides(self, *operands: int) -> list[Parameter]:
        """STRIDES of x and of the results."""
        found: list[Parameter] = []
        for operand in operands:
            step = self.step if operand == X else self.found.steps[operand]
            found += [Constant(v, "long") for v in (*self.found.strides[operand], step)]
        return found
