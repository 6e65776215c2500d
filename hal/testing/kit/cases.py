"""The list of all checks of the kit, as named cases that can be run one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.testing.certification.run_record import ANY, RunRecord, dtype_key
from polyhal.hal.testing.kit import contract, forward, gradients
from polyhal.hal.testing.kit.core_only import core_only, has_more
from polyhal.hal.testing.kit.scope import Scope


@dataclass(frozen=True, slots=True)
class Case:
    """One check. `run` raises AssertionError if the device is wrong, and passes on whatever the device raises."""

    id: str
    run: Callable[[], None]
    op: str = ""
    """Empty for checks of the contract."""
    dtype: str = ANY
    device: str = ""

    @property
    def kind(self) -> str:
        """The kind of check: contract, forward, decomposition, errors, gradient or second_order."""
        return self.id.partition("/")[0]


def cases(device: Device, scope: Scope, record: RunRecord | None = None) -> Iterator[Case]:
    """All cases for `device`: the contract's members, then every op in every dtype that the device stores.

    `record` receives what forward cases measure.
    """
    for name, check in contract.checks(device, scope):
        yield Case(f"contract/{name}", check, device=device.name)
    reduced = core_only(device)
    for op in OPS:
        yield from _op_cases(device, reduced, op, scope, record)


def op_cases(device: Device, op: OpDef, scope: Scope, record: RunRecord | None = None) -> Iterator[Case]:
    """The cases of one op."""
    return _op_cases(device, core_only(device), op, scope, record)


def _op_cases(device: Device, reduced: Device, op: OpDef, scope: Scope, record: RunRecord | None) -> Iterator[Case]:
    def case(kind: str, dtype: DType | None, check: Callable[..., None], *args: Any) -> Case:
        name = f"{kind}/{op.name}" if dtype is None else f"{kind}/{op.name}/{dtype.name}"
        return Case(name, functools.partial(check, *args), op.name, dtype_key(dtype), device.name)

    kinds = _kinds(device, op)
    if op.tests.samples is not None:
        for dtype in kinds:
            yield case("forward", dtype, forward.check_forward, device, op, dtype, scope, record)
        # Without anything else, the forward cases run through the decomposition already, in more layouts.
        if op.decompose is not None and has_more(device):
            for dtype in kinds:
                yield case("decomposition", dtype, forward.check_core_only, reduced, op, dtype, scope)
    if op.tests.errors:
        yield case("errors", None, forward.check_errors, device, op)
    if gradients.is_differentiable(device, op, scope):
        for dtype in kinds:
            if dtype is not None and dtype.is_floating_point:
                yield case("gradient", dtype, gradients.check_first_order, device, op, dtype, scope)
        yield case("second_order", None, gradients.check_second_order, device, op, scope)


def _kinds(device: Device, op: OpDef) -> tuple[DType | None, ...]:
    """The dtypes that `op` and `device` have in common; a single None for ops whose samples fix the dtype."""
    if not op.tests.dtypes:
        return (None,)
    return tuple(d for d in op.tests.dtypes if d in device.capabilities.storage)
