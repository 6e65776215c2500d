"""Running an op with its results written over existing arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from polyhal.hal.backend_failures import note_backend_failure
from polyhal.hal.dispatch.observed import observed_plan
from polyhal.hal.dispatch.operands import arg, freeze, input_spec, mismatch
from polyhal.hal.dispatch.plans import plan_key
from polyhal.hal.errors import OutOfMemoryError, out_of_memory_in
from polyhal.hal.memory.overlap import share_elements

if TYPE_CHECKING:
    from polyhal.hal.layout import Ref
    from polyhal.hal.ops.opdef import OpDef

SEPARATE, OVERLAPPING = -1, -2
"""How an output may relate to the inputs, if it is not exactly one of them."""


def write_into(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
    """Run `op` with its results written over existing arrays; their version counters advance.

    An out array may be one of the inputs. Shapes and dtypes must be those that the op infers. Raises ShapeError.
    """
    device = outs[0].device
    params = freeze(params)
    specs = tuple(input_spec(x) for x in inputs)
    for x in inputs:
        if hasattr(x, "device") and x.device is not device:
            raise mismatch(op, (*inputs, *outs))
    aliases = _aliases(inputs, outs)
    key = (*plan_key(op, params, specs), "into", *[o.ref.spec for o in outs], aliases)
    plan = device.plans.get(key)
    if plan is None:
        plan = device.planner.plan_into(op, specs, params, tuple(o.ref.spec for o in outs), aliases)
        plan = observed_plan(device, op, specs, params, plan, fresh=False)
        device.plans[key] = plan
    try:
        plan.run([arg(x) for x in inputs], [o.ref for o in outs])
    except OutOfMemoryError as error:
        raise out_of_memory_in(op.name, error) from error
    except Exception as error:
        note_backend_failure(error, op.name, device)
        raise
    for out in outs:
        out.buffer.version += 1


def _aliases(inputs: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the input that each output replaces; SEPARATE if it shares no elements, OVERLAPPING if it shares some."""
    by_buffer: dict[int, list[tuple[int, Ref]]] = {}
    for i, x in enumerate(inputs):
        if hasattr(x, "ref"):
            by_buffer.setdefault(id(x.buffer), []).append((i, x.ref))
    return tuple([_relation(by_buffer.get(id(out.buffer), ()), out.ref) for out in outs])


def _relation(inputs: Iterable[tuple[int, Ref]], out: Ref) -> int:
    """Return the relation of an output to the inputs in its buffer."""
    relation = SEPARATE
    for i, ref in inputs:
        if relation == SEPARATE and ref.offset == out.offset and ref.spec == out.spec:
            relation = i
        elif share_elements(ref, out):
            return OVERLAPPING
    return relation
