"""Check, in each run, of the values that Python read while a step was recorded.

The graph computes one flag, True if all these values are as recorded. The host reads it once in a run: before the first call
that writes memory which the program can see, so that a run that must not follow the recorded path has had no effect. These are
inputs that the step updates, and tensors that outlive it, such as gradients. Calls up to the flag write neither: there inputs
are updated by copies at the end of the run, and such tensors get other memory in each run. Calls between the flag and the
first write, and calls after the check, are enqueued without waiting.

A Python function in the graph may end the run as well, by an error. The same holds for the calls up to the last function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal.compile.capture.replay_log import PathChangedError

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.plan import StepPlan
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Ref


def require_recorded_path(device: Device, flag: Ref) -> None:
    """Raise PathChangedError if the flag is False."""
    if not device.download(flag).item():
        raise PathChangedError


def early_results(plan: StepPlan) -> frozenset[int]:
    """Return the allocations of tensors that outlive the step and that are written before the run is certain to go on."""
    return frozenset(n for n in _outliving(plan) if plan.buffers.allocations[n].first <= plan.settled)


def first_visible_write(plan: StepPlan) -> int:
    """Return the position of the first call after the flag that writes memory which the program can see.

    The number of calls if only the copies at the end of a run do.
    """
    buffers = plan.buffers
    visible = _outliving(plan) - early_results(plan)
    visible |= {n for n, allocation in enumerate(buffers.allocations) if allocation.source is not None}
    for k in range(plan.settled + 1, len(plan.calls)):
        if plan.calls[k] is not None and any(buffers.slice_of(v)[0] in visible for v in plan.graph.nodes[k].outputs):
            return k
    return len(plan.calls)


def _outliving(plan: StepPlan) -> set[int]:
    """Return the allocations of tensors that were made in the step and outlive it."""
    values = (plan.graph.outputs[output] for _, output in plan.captured.live_outs)
    return {plan.buffers.slice_of(v)[0] for v in values}
