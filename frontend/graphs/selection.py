"""From what users pass to the recorded step behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.errors import CaptureError, message
from polyhal.steps.block import CapturedBlock
from polyhal.steps.jit import Jitted
from polyhal.steps.step import CapturedStep

if TYPE_CHECKING:
    from polyhal.graphs.loading import LoadedGraph


def recorded_step(step: Jitted[..., Any] | CapturedBlock | CapturedStep | LoadedGraph) -> CapturedStep | LoadedGraph:
    """Return the only step of a captured function or block, or `step` itself. Raises CaptureError if there is not just one."""
    if isinstance(step, CapturedBlock):
        return step.recorded()
    if not isinstance(step, Jitted):
        return step
    if len(step.steps) != 1:
        raise CaptureError(
            message(
                "graph",
                f"{len(step.steps)} steps of the function are recorded",
                expected="one",
                fix="name one of its .steps" if step.steps else "call it twice first",
            )
        )
    return step.steps[0]
