"""Plans that keep to a budget of memory."""

from __future__ import annotations

from polyhal.hal.capture.result import CapturedGraph
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.scheduler.liveness import greatest
from polyhal.hal.scheduler.plan import Plan, plan
from polyhal.hal.scheduler.rematerialize import recomputed
from polyhal.hal.scheduler.report import report

_MOST_TRIES = 6


def plan_within(captured: CapturedGraph, budget: int | None, *, apart: bool = False) -> Plan:
    """Plan a step that needs at most `budget` bytes on each device, parameters and state included; `apart` is as for `plan`.

    Values are computed again rather than kept where more would be needed; None for no budget. Raises OutOfMemoryError if
    that does not suffice.
    """
    found = plan(captured, apart=apart)
    if budget is None:
        return found
    beyond = _needed(found) - budget
    for _ in range(_MOST_TRIES):
        # The arena may be a little larger than what its tensors need, so the aim is lowered until all fits.
        inside = frozenset() if apart else captured.write_only_gradients()
        aim = greatest(found.graph, inside) - beyond
        graph = recomputed(found.graph, aim, inside) if beyond > 0 and aim > 0 else found.graph
        if graph is found.graph:
            break
        found = plan(captured, graph, apart=apart)
        beyond = _needed(found) - budget
    if beyond > 0:
        raise OutOfMemoryError(
            message(
                "budget",
                f"a step needs at least {_needed(found) / 2**20:.2f} MiB, with values computed again where that helps",
                expected=f"at most {budget / 2**20:.2f} MiB",
                fix="use a smaller batch or a larger budget",
            )
        )
    return found


def _needed(plan: Plan) -> int:
    """What the step needs on the device where it needs the most."""
    return max((d.step for d in report(plan).devices), default=0)
