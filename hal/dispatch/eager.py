"""The eager hot path: from an op call to a launch, with one dictionary lookup in between.

Whatever is costly (promotion, shape rules, choosing and building kernels) happens when a plan is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.dispatch.executor import frontend, set_default_executor, thread
from polyhal.hal.dispatch.operands import NUMBERS, admitted, arg, freeze, input_spec, mismatch
from polyhal.hal.layout import Ref
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.planning.planner import Plan


def eager(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
    """Run `op` now on the device of its inputs (or on `device`, for ops that create) and write the tape if needed."""
    key: list[Any] = [op, params, settings.key]
    track = False
    for x in inputs:
        kind = type(x)
        if kind in NUMBERS or x is None:
            key.append(kind)
            continue
        try:
            key.append(x.ref.spec)
        except AttributeError:
            return _convert(op, inputs, params, device)
        if device is None:
            device = x.device
        elif x.device is not device:
            raise mismatch(op, inputs)
        if x.requires_grad:
            track = True
    try:
        plan = device.plans.get(tuple(key))
    except (TypeError, AttributeError):  # a list among the parameters; no device, or its name
        plan = None
    if plan is None:
        if not hasattr(device, "plans"):
            return _convert(op, inputs, params, device)
        params = freeze(params)
        plan = make_plan(device, op, inputs, params)
    delta = plan.view
    if delta is not None:
        x = inputs[0]
        ref = x.ref
        outs: Any = frontend.wrap(device, x.buffer, Ref(ref.handle, plan.spec, ref.offset + delta))
        if track and thread.grad_enabled:
            frontend.record(op, inputs, params, (outs,))
        return outs
    single = plan.single
    if single is not None:
        buffer = device.pool.take(plan.bucket)
        out = Ref(buffer.handle, plan.spec, 0)
        if len(inputs) == 2:
            a, b = inputs
            single(a if type(a) in NUMBERS else a.ref, b if type(b) in NUMBERS else b.ref, out)
        elif len(inputs) == 1:
            single(inputs[0].ref, out)
        else:
            single(*[arg(x) for x in inputs], out)
        outs = frontend.wrap(device, buffer, out)
        if track and thread.grad_enabled:
            frontend.record(op, inputs, params, (outs,))
        return outs
    buffers = [device.pool.take(size) for size in plan.buckets]
    refs = [Ref(b.handle, s, 0) for b, s in zip(buffers, plan.outputs, strict=True)]
    plan.run([arg(x) for x in inputs], refs)
    results = tuple(frontend.wrap(device, b, r) for b, r in zip(buffers, refs, strict=True))
    if track and thread.grad_enabled:
        frontend.record(op, inputs, params, results)
    return results if plan.tuple_result else results[0]


set_default_executor(eager)


def make_plan(device: Device, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...]) -> Plan:
    """Plan `op` for the specs of `inputs` and remember it on the device."""
    specs = tuple(input_spec(x) for x in inputs)
    plan = device.planner.plan(op, specs, params)
    device.plans[plan_key(op, params, specs)] = plan
    return plan


def plan_key(op: OpDef, params: tuple[Any, ...], specs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the plan of a call is remembered under, from what `input_spec` says of its inputs."""
    return (op, params, settings.key, *[type(None) if s is None else s for s in specs])


def _convert(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any) -> Any:
    """The slow way in: NumPy arrays, NumPy numbers and nested lists become arrays beside the others."""
    converted, target = admitted(op, inputs, device)
    return eager(op, converted, params, target)
