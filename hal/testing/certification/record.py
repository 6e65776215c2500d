"""What a run of the kit finds out about each op and dtype besides right and wrong: how it ran, how far it was off."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from polyhal.hal.dtypes import DType
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.testing.kit.tolerances import Measure

ANY = "any"
"""What stands for the dtype of checks that are about none in particular."""


@dataclass(slots=True)
class Cell:
    """One op in one dtype."""

    steps: Counter[ResolutionStep] = field(default_factory=Counter)
    """How often it ran in which way; calls on empty tensors do not count."""
    worst_ulp: float | None = None
    """The largest error of a float result, in the units of `tolerances.largest_error`; None before any."""

    def compared(self, ulp: float) -> None:
        """Take in the largest error of one result."""
        self.worst_ulp = ulp if self.worst_ulp is None else max(self.worst_ulp, ulp)


class Record:
    """Cells by op and dtype, by name."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Cell] = {}

    def cell(self, op: str, dtype: str) -> Cell:
        """The cell of an op and a dtype, made where it is missing."""
        return self.cells.setdefault((op, dtype), Cell())

    def ran(self, op: OpDef, dtype: DType | None, step: ResolutionStep | None) -> None:
        """Count a call that ran as `step`."""
        if step is not None and step is not ResolutionStep.NOTHING:
            self.cell(op.name, named(dtype)).steps[step] += 1

    def measure(self, op: OpDef, dtype: DType | None) -> Measure:
        """What comparisons of the op's results are to report to."""
        return self.cell(op.name, named(dtype)).compared


def named(dtype: DType | None) -> str:
    """The name of a dtype, or `ANY`."""
    return dtype.name if dtype is not None else ANY
