"""Plans whose runs are observed: by the checks that are in force, and on CPUs by the check of indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.dispatch.bounds import check_range
from polyhal.hal.core.dispatch.observer import ObservedCall, run_observed
from polyhal.hal.core.execution.executor import thread
from polyhal.hal.core.execution.forwarding import ForwardingExecutor
from polyhal.hal.core.execution.location import SourceLocation
from polyhal.hal.core.execution.op_plan import OpPlan
from polyhal.hal.core.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import ParamValues


def observed_plan(
    device: Device, op: OpDef, specs: tuple[Any, ...], params: ParamValues, plan: OpPlan, *, fresh: bool = True
) -> OpPlan:
    """The plan of an op, with observers around each run if there are any; `fresh` if it writes to memory of its own.

    Settings are part of the key of every plan, so that a plan is only found while the same holds.
    """
    if plan.view is not None:
        return plan
    bound = op.bind(params)
    if settings.observers:

        def observed(inputs: Any, outputs: Any) -> None:
            call = ObservedCall(device, op, bound, inputs, outputs, plan.resolution, current_location)
            run_observed(call, lambda: plan.run(inputs, outputs))

        return OpPlan(plan.outputs, observed, plan.resolution, tuple_result=plan.tuple_result)
    if op.index_range is None or not settings.index_checks or device.info.type is not DeviceType.CPU:
        return plan
    op.infer(specs, bound)  # may normalize parameters
    allowed = op.index_range(specs, bound)

    def checked(inputs: Any, outputs: Any) -> None:
        if not thread.indices_checked:
            check_range(device, op.name, allowed, inputs[allowed.input], lambda: str(current_location()))
        plan.run(inputs, outputs)

    return OpPlan(plan.outputs, checked, plan.resolution, tuple_result=plan.tuple_result)


def current_location() -> SourceLocation:
    """The location of the op that is called now, with its module if the thread's executor follows modules."""
    executor: Any = thread.executor
    while isinstance(executor, ForwardingExecutor):
        if (locate := getattr(executor, "location", None)) is not None:
            location: SourceLocation = locate()
            return location
        executor = executor.base
    return SourceLocation.current()
