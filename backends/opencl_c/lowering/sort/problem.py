"""Rows to be sorted, and the kernel arguments that describe them."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.launch import Argument
from polyhal.backends.common.problems.rows import StridedRows
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType

X, VALUES, INDICES, FIRST_WORKSPACE = range(4)
"""Positions in the argument list."""


@dataclass(frozen=True, slots=True)
class SortProblem:
    """Rows of x; the results are the first `keep` elements of each row in order, and their positions."""

    runtime: Runtime
    kept: StridedRows
    """Strides of x and both results, for rows of `keep` elements."""
    length: int
    """Elements of a row of x."""
    step: int
    """Stride along a row of x."""
    dtype: DType
    descending: bool

    @property
    def rows(self) -> int:
        return self.kept.count

    @property
    def keep(self) -> int:
        return self.kept.length

    @property
    def definitions(self) -> dict[str, str | int | bool]:
        """Definitions for sort/items.h."""
        return {"DTYPE": self.dtype.name, "DESCENDING": self.descending}

    def geometry(self, length: int, keep: int) -> dict[str, Argument]:
        """Return the members of SortGeometry for rows of `length` elements with `keep` results."""
        steps = self.step, *self.kept.steps[1:]
        x, values, indices = ((*outer, step) for outer, step in zip(self.kept.strides, steps, strict=True))
        return {
            "x_strides": x,
            "values_strides": values,
            "indices_strides": indices,
            "rows": self.rows,
            "length": length,
            "keep": keep,
            "rows1": self.kept.outer[1],
            "rows2": self.kept.outer[2],
        }
