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
    key: list[Any] = [op, params, settings.key]
    args: list[Any] = []
    holders = _Holders()
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
        holders.add(x.buffer, i)
    refs = [o.ref for o in outs]
    aliases = tuple([_relation(holders.of(o.buffer), args, ref) for o, ref in zip(outs, refs, strict=True)])
    key += ("into", *[ref.spec for ref in refs], aliases)
    plan = device.plans.get(tuple(key))
    if plan is None:
        specs = tuple(input_spec(x) for x in inputs)
        plan = device.planner.plan_into(op, specs, params, tuple(ref.spec for ref in refs), aliases)
        plan = guard(observed_plan(device, op, specs, params, plan, fresh=False), op, specs)
        device.plans[tuple(key)] = plan
    try:
        plan.run(args, refs)
    except MemoryError as error:
        raise out_of_memory_in(op.name, error) from error
    except Exception as error:
        note_backend_failure(error, op.name, device)
        raise
    for out in outs:
        out.buffer.version += 1


class _Holders:
    """Positions of the inputs in each buffer."""

    __slots__ = ("_first", "_several")

    def __init__(self) -> None:
        self._first: dict[Buffer, int] = {}
        self._several: dict[Buffer, list[int]] = {}
        """Buffers with several inputs, which are rare."""

    def add(self, buffer: Buffer, i: int) -> None:
        """Note an input."""
        first = self._first.setdefault(buffer, i)
        if first != i:
            self._several.setdefault(buffer, [first]).append(i)

    def of(self, buffer: Buffer) -> Sequence[int]:
        """Return the inputs in a buffer."""
        first = self._first.get(buffer)
        if first is None:
            return ()
        return self._several.get(buffer, (first,)) if self._several else (first,)


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
