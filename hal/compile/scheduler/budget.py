"""Plans of captured steps within a memory budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal.byte_sizes import size_text
from polyhal.hal.compile.capture.result import CapturedGraph
from polyhal.hal.compile.ir.program import PROGRAM
from polyhal.hal.compile.scheduler.liveness import peak_live_bytes
from polyhal.hal.compile.scheduler.plan import StepPlan, plan_step
from polyhal.hal.compile.scheduler.rematerialize import rematerialize
from polyhal.hal.compile.scheduler.report import report
from polyhal.hal.errors import OutOfMemoryError, message

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_MAX_TRIES = 6


def plan_within(captured: CapturedGraph, budget: int | None, *, separate_gradients: bool = False) -> StepPlan:
    """Plan a step that needs at most `budget` bytes on each device, parameters and state included.

    Values are recomputed rather than kept if the step would exceed the budget; None means no budget. Devices on which the step
    does not fit with programs that the backend compiles run it by launches. `separate_gradients` is as
    for `plan_step`. Raises OutOfMemoryError if recomputation does not suffice.
    """
    compact = budget is not None
    plan = plan_step(captured, separate_gradients=separate_gradients, compact=compact)
    if too_large := _programs_that_do_not_fit(plan, budget):
        # The scheduler can neither reuse nor recompute the values within a program.
        declined = {**plan.declined, **too_large}
        plan = plan_step(captured, separate_gradients=separate_gradients, compact=compact, declined=declined)
    if budget is None:
        return plan
    inside = frozenset() if separate_gradients else captured.write_only_gradients()
    excess = _needed(plan) - budget
    for _ in range(_MAX_TRIES):
        # The arena may be a little larger than the sum of its tensors, so the target is lowered until the plan fits.
        before = plan.scheduled
        target = peak_live_bytes(before, inside) - excess
        graph = rematerialize(before, target, inside) if excess > 0 and target > 0 else before
        if graph is before:
            break
        plan = plan_step(captured, graph, separate_gradients=separate_gradients, compact=True, declined=plan.declined)
        excess = _needed(plan) - budget
    if excess > 0:
        raise OutOfMemoryError(
            message(
                "budget",
                f"a step needs at least {_needed(plan) / 2**20:.2f} MiB, even with recomputed values",
                expected=f"at most {budget / 2**20:.2f} MiB",
                fix="use a smaller batch or a larger budget",
            )
        )
    return plan


def _needed(plan: StepPlan) -> int:
    """Return the maximum over all devices of the bytes that the step needs."""
    return max((d.step for d in report(plan).devices), default=0)


def _programs_that_do_not_fit(plan: StepPlan, budget: int | None) -> dict[Device, str]:
    """Return the devices on which a step with programs exceeds the budget or the free memory, each with the reason."""
    found: dict[Device, str] = {}
    devices = {str(d.name): d for d in plan.devices if d is not None}
    with_programs = {n.device for n in plan.graph.nodes if n.op is PROGRAM}
    for memory in report(plan).devices if with_programs else ():
        device = devices[memory.device]
        pool = device.pool
        free = pool.available + pool.total_reserved - pool.used
        if device not in with_programs:
            continue
        if budget is not None and memory.step > budget:
            found[device] = f"a step with programs needs {size_text(memory.step)}, the budget is {size_text(budget)}"
        elif memory.own > free:
            found[device] = f"a run with programs needs {size_text(memory.own)}, {size_text(free)} are free"
    return found
