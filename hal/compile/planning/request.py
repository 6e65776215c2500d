"""Arguments and results of resolution steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from polyhal.hal.compile.planning.resolution import Resolution
from polyhal.hal.core.execution.op_plan import Run
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import Specs
from polyhal.hal.protocol import Launch

Resolved = tuple[Run, Launch | None]
"""Run of an op, and its launch if it is a single launch."""


class Request(NamedTuple):
    """An op with its specs and parameters, and the record of the reasons why steps do not apply."""

    op: OpDef
    inputs: Specs
    outputs: tuple[Spec, ...]
    params: dict[str, Any]
    aliases: tuple[int, ...]
    """Input that each output replaces in place, or -1; empty if no output does."""
    resolution: Resolution
    on_device: bool = False
    """True for a part of a program that must not run on the host (see `OnDevice`)."""

    @property
    def has_empty_input(self) -> bool:
        """True if an input is a tensor without elements, which kernels do not accept."""
        return any(isinstance(s, Spec) and not s.size for s in self.inputs)
