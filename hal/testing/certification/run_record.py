"""Measurements of a run of the kit per op and dtype: resolution steps, and the largest error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.dtypes import DType
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.system.reference.tolerances import Measure

ANY = "any"
"""Key of checks without a particular dtype."""


@dataclass(slots=True)
class OpRecord:
    """Record of one op in one dtype."""

    steps: Counter[ResolutionStep] = field(default_factory=Counter)
    """Number of calls per resolution step, without calls on empty tensors."""
    worst_ulp: float | None = None
    """Largest error of a float result (see `tolerances.largest_error`); None before the first."""

    def add_error(self, ulp: float) -> None:
        """Record the largest error of one result."""
        self.worst_ulp = ulp if self.worst_ulp is None else max(self.worst_ulp, ulp)


class RunRecord:
    """Measurements by the names of op and dtype."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], OpRecord] = {}

    def cell(self, op: str, dtype: str) -> OpRecord:
        """Return the measurements of an op in a dtype, created if missing."""
        return self.cells.setdefault((op, dtype), OpRecord())

    def ran(self, op: OpDef, dtype: DType | None, step: ResolutionStep | None) -> None:
        """Count a call that was resolved by `step`."""
        if step is not None and step is not ResolutionStep.NOTHING:
            self.cell(op.name, dtype_key(dtype)).steps[step] += 1

    def measure(self, op: OpDef, dtype: DType | None) -> Measure:
        """Return a function that records the errors of the op's results."""
        return self.cell(op.name, dtype_key(dtype)).add_error


def dtype_key(dtype: DType | None) -> str:
    """Return the key of a dtype: its name, or `ANY`."""
    return dtype.name if dtype is not None else ANY
