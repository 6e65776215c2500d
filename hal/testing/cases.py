"""The list of everything the kit checks on a device, as named cases that can be run one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.testing import contract, forward, gradients
from polyhal.hal.testing.bare import bare
from polyhal.hal.testing.scope import Scope


@dataclass(frozen=True, slots=True)
class Case:
    """One check. `run` raises AssertionError when the device is wrong, and whatever the device raises."""

    id: str
    run: Callable[[], None]


def cases(device: Device, scope: Scope) -> Iterator[Case]:
    """All cases for `device`: the contract's members, then every op in every dtype that the device stores."""
    for name, check in contract.checks(device, scope):
        yield Case(f"contract/{name}", check)
    reduced = bare(device)
    for op in OPS:
        yield from _op_cases(device, reduced, op, scope)


def _op_cases(device: Device, reduced: Device, op: OpDef, scope: Scope) -> Iterator[Case]:
    kinds = _kinds(device, op)
    if op.samples is not None:
        for dtype in kinds:
            yield Case(_id("forward", op, dtype), functools.partial(forward.forward, device, op, dtype, scope))
        if op.decompose is not None:
            for dtype in kinds:
                yield Case(
                    _id("decomposition", op, dtype), functools.partial(forward.required_only, reduced, op, dtype, scope)
                )
    if op.errors:
        yield Case(f"errors/{op.name}", functools.partial(forward.errors, device, op))
    if gradients.differentiable(device, op, scope):
        for dtype in kinds:
            if dtype is not None and dtype.is_floating_point:
                yield Case(
                    _id("gradient", op, dtype), functools.partial(gradients.first_order, device, op, dtype, scope)
                )
        yield Case(f"second_order/{op.name}", functools.partial(gradients.second_order, device, op, scope))


def _kinds(device: Device, op: OpDef) -> tuple[DType | None, ...]:
    """The dtypes that `op` and `device` have in common; a single None for ops whose samples fix the dtype."""
    if not op.dtypes:
        return (None,)
    return tuple(d for d in op.dtypes if d in device.capabilities.storage)


def _id(kind: str, op: OpDef, dtype: DType | None) -> str:
    return f"{kind}/{op.name}" if dtype is None else f"{kind}/{op.name}/{dtype.name}"


def floats(device: Device) -> tuple[DType, ...]:
    """The floating-point dtypes that `device` stores."""
    return tuple(d for d in dtypes.FLOATS if d in device.capabilities.storage)
