"""An op to be resolved, and what a resolution step answers."""

from __future__ import annotations

from typing import Any, NamedTuple

from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import Specs
from polyhal.hal.planning.plan import Run
from polyhal.hal.planning.resolution import Resolution
from polyhal.hal.protocol import Launch

Resolved = tuple[Run, Launch | None]
"""How to run an op, and the launch if that is all there is to it."""


class Request(NamedTuple):
    """An op with its specs and parameters, and the record to which steps add why they do not apply."""

    op: OpDef
    inputs: Specs
    outputs: tuple[Spec, ...]
    params: dict[str, Any]
    aliases: tuple[int, ...]
    """Which input each output replaces in place, -1 for none; empty if no output does."""
    resolution: Resolution

    @property
    def has_empty_input(self) -> bool:
        """Whether an input is a tensor without elements, which kernels do not take."""
        return any(isinstance(s, Spec) and not s.size for s in self.inputs)
