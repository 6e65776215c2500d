"""Running an op with its results written over existing arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.backend_failures import note_backend_failure
from polyhal.hal.core.dispatch.number_range import guard
from polyhal.hal.core.dispatch.observed import observed_plan
from polyhal.hal.core.dispatch.operands import NUMBERS, freeze, input_spec, mismatch
from polyhal.hal.core.memory.overlap import share_elements
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import out_of_memory_in

if TYPE_CHECKING:
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Ref
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues

SEPARATE, OVERLAPPING = -1, -2
"""How an output may relate to the inputs, if it is not exactly one of them."""


def write_into(op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Any, ...]) -> None:
    """Run `op` with its results written over existing arrays; their version counters advance.

    An out array may be one of the inputs. Shapes and dtypes must be those that the op infers. Raises ShapeError.
    """
    device = outs[0].device
    key: list[Any] = [op, params, settings.key]
    args: list[Any] = []
    readers = _Readers(args)
    for i, x in enumerate(inputs):
        kind = type(x)
        if kind in NUMBERS or x is None:
            key.append(kind)
            args.append(x)
            continue
        if x.device is not device:
            raise mismatch(op, (*inputs, *outs))
        ref = x.ref
        key.append(ref.spec)
        args.append(ref)
        buffer = x.buffer
        if buffer in readers.first:
            readers.several.setdefault(buffer, [readers.first[buffer]]).append(i)
        else:
            readers.first[buffer] = i
    refs = [o.ref for o in outs]
    aliases = readers.aliases(outs, refs)
    key += ("into", *[ref.spec for ref in refs], aliases)
    try:
        plan = device.plans.get(tuple(key))
    except TypeError:  # a list among the parameters
        plan = None
    if plan is None:
        plan = _planned(device, op, inputs, key, refs, aliases)
    try:
        plan.run(args, refs)
    except MemoryError as error:
        raise out_of_memory_in(op.name, error) from error
    except Exception as error:
        note_backend_failure(error, op.name, device)
        raise
    for out in outs:
        out.buffer.version += 1


def _planned(
    device: Device, op: OpDef, inputs: tuple[Any, ...], key: list[Any], refs: Sequence[Ref], aliases: tuple[int, ...]
) -> Any:
    """Return the plan for `key`, which must be made unless it only has other types of parameters than an earlier one."""
    key[1] = params = freeze(key[1])
    plan = device.plans.get(tuple(key))
    if plan is None:
        specs = tuple(input_spec(x) for x in inputs)
        plan = device.planner.plan_into(op, specs, params, tuple(ref.spec for ref in refs), aliases)
        plan = device.plans[tuple(key)] = guard(observed_plan(device, op, specs, params, plan, fresh=False), op, specs)
    return plan


class _Readers:
    """The inputs of a call by buffer."""

    __slots__ = ("_args", "first", "several")

    def __init__(self, args: Sequence[Any]) -> None:
        self._args = args
        self.first: dict[Buffer, int] = {}
        self.several: dict[Buffer, list[int]] = {}
        """Buffers with several inputs, which are rare."""

    def aliases(self, outs: Sequence[Any], refs: Sequence[Ref]) -> tuple[int, ...]:
        """Return the relation of each output to the inputs, see `_relation`."""
        first, several, args = self.first, self.several, self._args
        found: list[int] = []
        for out, ref in zip(outs, refs, strict=True):
            i = first.get(out.buffer)
            if i is None:
                found.append(SEPARATE)
            elif args[i] is ref and not several:
                found.append(i)
            else:
                found.append(_relation(several.get(out.buffer, (i,)), args, ref))
        return tuple(found)


def _relation(inputs: Iterable[int], refs: Sequence[Any], out: Ref) -> int:
    """Return the input that an output replaces; SEPARATE if it shares no elements, OVERLAPPING if it shares some."""
    relation = SEPARATE
    for i in inputs:
        ref = refs[i]
        if relation == SEPARATE and ref.offset == out.offset and ref.spec == out.spec:
            relation = i
        elif share_elements(ref, out):
            return OVERLAPPING
    return relation
