"""The plans of a device: made once per op, parameters, settings and specs, then looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.core.dispatch.number_range import guard
from polyhal.hal.core.dispatch.observed import observed_plan
from polyhal.hal.core.dispatch.operands import input_spec
from polyhal.hal.core.settings.log import logger
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import out_of_memory_in

if TYPE_CHECKING:
    from polyhal.hal.core.execution.op_plan import OpPlan
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues

_LOG = logger("dispatch")


def make_plan(device: Device, op: OpDef, inputs: Inputs, params: ParamValues) -> OpPlan:
    """Plan `op` for the specs of `inputs` and remember it on the device."""
    specs = tuple(input_spec(x) for x in inputs)
    try:
        plan = device.planner.plan(op, specs, params)
    except MemoryError as error:  # a lowering may compute tables on the host
        raise out_of_memory_in(op.name, error) from error
    _LOG.debug("%s: %s", device.name, plan.resolution)
    plan = guard(observed_plan(device, op, specs, params, plan), op, specs)
    device.plans[plan_key(op, params, specs)] = plan
    return plan


def plan_key(op: OpDef, params: ParamValues, specs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the cache key of a call's plan, from the results of `input_spec` for its inputs."""
    return (op, params, settings.key, *[type(None) if s is None else s for s in specs])
