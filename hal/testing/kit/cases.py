"""The list of all checks of the kit, as named cases that can be run individually."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.compile.op_plugins import declared, op_plugins
from polyhal.hal.compile.planning.source_kernel import source_launch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.ops import OPS
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.ops.opdef import OpDef, OpFunction
from polyhal.hal.protocol import Declined, Feature
from polyhal.hal.system.reference.op_calls import specs_of
from polyhal.hal.testing.certification.run_record import ANY, RunRecord, dtype_key
from polyhal.hal.testing.kit import contract, forward, gradients
from polyhal.hal.testing.kit.core_only import core_only, has_more
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.sample_calls import sample_calls
from polyhal.hal.testing.kit.scope import Scope


@dataclass(frozen=True, slots=True)
class Case:
    """A check. `run` raises AssertionError if the device is wrong, and propagates exceptions of the device."""

    id: str
    run: Callable[[], None]
    op: str = ""
    """Name of the op; empty for checks of the contract."""
    dtype: str = ANY
    device: str = ""

    @property
    def kind(self) -> str:
        """Return the kind of check: contract, forward, decomposition, errors, gradient or second_order."""
        return self.id.partition("/")[0]


def cases(
    device: Device,
    scope: Scope,
    record: RunRecord | None = None,
    ops: Sequence[OpDef] | None = None,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Iterator[Case]:
    """Yield all cases for `device`: the contract's members, then every op in every dtype that the device stores.

    Ops of installed packages are included. `ops` are the only ops to check, without the contract. `record` receives the
    measurements of forward cases. Cases whose id is not `wanted` are skipped at almost no cost.
    """
    if ops is None:
        for name, check in contract.checks(device, scope):
            if wanted(f"contract/{name}"):
                yield Case(f"contract/{name}", check, device=device.name)
        op_plugins().load()
        ops = tuple(OPS)
    reduced = core_only(device)
    for op in ops:
        yield from _op_cases(device, reduced, op, scope, record, wanted)


def op_cases(device: Device, op: OpDef, scope: Scope, record: RunRecord | None = None) -> Iterator[Case]:
    """Yield the cases of one op."""
    return _op_cases(device, core_only(device), op, scope, record, lambda name: True)


def check(op: OpFunction | str, device: Device | str | None = None, scope: Scope | None = None) -> int:
    """Run all cases of one op on a device, by default the default device, and return their number.

    `op` is the name of an op, or the function of one that has samples, such as a kernel of `polyhal.kernel`. A kernel
    without source in the device's language has no cases. Raises ValueError for an op without samples, and the
    AssertionError of the first case that fails.
    """
    target = isolated(Device(device))
    definition = declared(op) if isinstance(op, str) else op.op
    if definition is None or definition.tests.samples is None:
        raise ValueError(message(definition.name if definition else str(op), "the op has no samples to check"))
    count = 0
    with strict():
        for case in op_cases(target, definition, scope or Scope()):
            case.run()
            count += 1
    return count


def _has_kernel(device: Device, op: OpDef) -> bool:
    """Return whether the device can run an op that consists of a user kernel, in one of the kernel's source languages."""
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
        return True  # errors occur in the cases
    return not isinstance(answer, Declined)


def _op_cases(
    device: Device, reduced: Device, op: OpDef, scope: Scope, record: RunRecord | None, wanted: Callable[[str], bool]
) -> Iterator[Case]:
    kinds = tuple(d for d in _kinds(device, op) if d is None or scope.runs(op, d))
    dtypes = [d for d in kinds if d is not None and d.is_floating_point]
    listed: list[tuple[str, DType | None, Callable[..., None], tuple[Any, ...]]] = []
    if op.tests.samples is not None:
        listed += [("forward", d, forward.check_forward, (device, op, d, scope, record)) for d in kinds]
        # On a device without native kernels, the forward cases already use the decomposition, in more layouts.
        if op.decompose is not None and has_more(device):
            listed += [("decomposition", d, forward.check_core_only, (reduced, op, d, scope)) for d in kinds]
    if op.tests.errors:
        listed.append(("errors", None, forward.check_errors, (device, op)))
    listed += [("gradient", d, gradients.check_first_order, (device, op, d, scope)) for d in dtypes]
    listed.append(("second_order", None, gradients.check_second_order, (device, op, scope)))
    asked = [(_id(kind, op, dtype), dtype, check, args) for kind, dtype, check, args in listed]
    asked = [row for row in asked if wanted(row[0])]
    if not asked or not _has_kernel(device, op):
        return
    differentiable: bool | None = None
    for name, dtype, check, args in asked:
        if name.startswith(("gradient/", "second_order/")):
            if differentiable is None:
                differentiable = gradients.is_differentiable(device, op, scope)
            if not differentiable:
                continue
        yield Case(name, functools.partial(check, *args), op.name, dtype_key(dtype), device.name)


def _id(kind: str, op: OpDef, dtype: DType | None) -> str:
    return f"{kind}/{op.name}" if dtype is None else f"{kind}/{op.name}/{dtype.name}"


def _kinds(device: Device, op: OpDef) -> tuple[DType | None, ...]:
    """Return the dtypes common to `op` and `device`; a single None for ops whose samples fix the dtype."""
    if not op.tests.dtypes:
        return (None,)
    return tuple(d for d in op.tests.dtypes if d in device.capabilities.storage)
