"""The list of all checks of the kit, as named cases that can be run one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.discovery.op_plugins import declared, op_plugins
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.ops import OPS
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.ops.opdef import OpDef, OpFunction
from polyhal.hal.planning.source_kernel import source_launch
from polyhal.hal.protocol import Declined, Feature
from polyhal.hal.testing.certification.run_record import ANY, RunRecord, dtype_key
from polyhal.hal.testing.kit import contract, forward, gradients
from polyhal.hal.testing.kit.core_only import core_only, has_more
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.op_calls import sample_calls, specs_of
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


def cases(
    device: Device, scope: Scope, record: RunRecord | None = None, ops: Sequence[OpDef] | None = None
) -> Iterator[Case]:
    """All cases for `device`: the contract's members, then every op in every dtype that the device stores.

    Ops of installed packages are among them. `ops` are those to check instead, without the contract. `record` receives
    what forward cases measure.
    """
    if ops is None:
        for name, check in contract.checks(device, scope):
            yield Case(f"contract/{name}", check, device=device.name)
        op_plugins().load()
        ops = tuple(OPS)
    reduced = core_only(device)
    for op in ops:
        yield from _op_cases(device, reduced, op, scope, record)


def op_cases(device: Device, op: OpDef, scope: Scope, record: RunRecord | None = None) -> Iterator[Case]:
    """The cases of one op."""
    return _op_cases(device, core_only(device), op, scope, record)


def check(op: OpFunction | str, device: Device | str | None = None, scope: Scope | None = None) -> int:
    """Run all cases of one op on a device, by default the default one, and return how many there are.

    `op` is the name of an op, or the function of one that has samples, such as a kernel of `polyhal.kernel`. There are none
    for a kernel that has no source in the device's language. Raises ValueError for an op without samples, and the
    AssertionError of the first case that fails.
    """
    target = isolated(Device(device))
    definition = declared(op) if isinstance(op, str) else op.op
    if definition is None or definition.tests.samples is None:
        raise ValueError(message(definition.name if definition else str(op), "there are no samples to check it with"))
    count = 0
    with strict():
        for case in op_cases(target, definition, scope or Scope()):
            case.run()
            count += 1
    return count


def _has_kernel(device: Device, op: OpDef) -> bool:
    """Whether the device runs an op that is nothing but its own kernel, in one of the languages that have its source."""
    strategy = op.strategy(SourceKernel)
    if strategy is None or op.decompose is not None:
        return True
    if not device.features & Feature.USER_KERNELS:
        return False
    calls = (c for c in sample_calls(op, next(iter(op.tests.dtypes), None)) if c.computes)
    call = next(calls, None)
    if call is None:
        return True
    try:
        answer = source_launch(device, strategy, specs_of(call.values), call.outputs(), call.params)
    except PolyhalError:
        return True  # the cases show it
    return not isinstance(answer, Declined)


def _op_cases(device: Device, reduced: Device, op: OpDef, scope: Scope, record: RunRecord | None) -> Iterator[Case]:
    def case(kind: str, dtype: DType | None, check: Callable[..., None], *args: Any) -> Case:
        name = f"{kind}/{op.name}" if dtype is None else f"{kind}/{op.name}/{dtype.name}"
        return Case(name, functools.partial(check, *args), op.name, dtype_key(dtype), device.name)

    if not _has_kernel(device, op):
        return
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
