"""Checks of optional members of the contract: every name in `Capabilities`, against the reference of its op."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.member_names import OPTIONAL_BINARY, OPTIONAL_REDUCE, OPTIONAL_UNARY
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.pointwise.contract_names import OP_NAMES
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_REDUCE, REQUIRED_UNARY, Feature
from polyhal.hal.system.reference.op_calls import OpCall, evaluate, specs_of
from polyhal.hal.system.reference.tolerances import Bound
from polyhal.hal.testing.kit.member_calls import MemberCheck, as_input, call_member, check_output, draw, guarded_output
from polyhal.hal.testing.kit.sample_calls import SEED, sample_calls
from polyhal.hal.testing.kit.scope import Scope, primary

_ROWS, _COLUMNS = 5, 33
_MOST = 512
"""Largest number of elements of one call."""


def checks(device: Device, scope: Scope) -> Iterator[tuple[str, MemberCheck]]:
    """Return the checks by name."""
    capabilities = device.capabilities
    yield "optional_names", functools.partial(optional_names, device)
    for family, names in (
        ("unary", capabilities.unary & OPTIONAL_UNARY),
        ("binary", capabilities.binary & OPTIONAL_BINARY),
    ):
        for name in sorted(names):
            yield f"{family}/{name}", functools.partial(elementwise, device, family, name, scope)
    for name in sorted(capabilities.reduce & OPTIONAL_REDUCE):
        yield f"reduce/{name}", functools.partial(reduction, device, name)


def optional_names(device: Device) -> None:
    """Check that the framework may call every name in `Capabilities`."""
    for family, known in (
        ("unary", OPTIONAL_UNARY | REQUIRED_UNARY),
        ("binary", OPTIONAL_BINARY | REQUIRED_BINARY),
        ("reduce", OPTIONAL_REDUCE | REQUIRED_REDUCE),
    ):
        for name in sorted(getattr(device.capabilities, family) - known):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "polyhal.hal.member_names lists the names"
            raise AssertionError(f"Capabilities.{family} has {name!r}, which the framework does not call; {hint}")


def elementwise(device: Device, family: str, name: str, scope: Scope) -> None:
    """Check a member on the samples of its op, all in one call, in the dtypes that the op and the device compute in.

    Devices with native kernels rarely use members, so float32 and one more dtype are checked on them, and all dtypes in
    a full scope.
    """
    op = OPS[OP_NAMES.get(name, name)]
    have = [d for d in op.tests.dtypes if d in device.capabilities.compute]
    if device.features & Feature.LOWERING and not scope.full:
        others = [d for d in have if d is not primary(op)]
        have = [d for d in have if d is primary(op)] + others[len(name) % max(len(others), 1) :][:1]
    member = getattr(device.backend, family)
    for turn, dtype in enumerate(have):
        operands = _operands(op, dtype)
        ((result, shape),) = dispatch.infer(op, specs_of(operands), {})
        out = guarded_output(result, shape, device, turn)
        call_member(member, name, *[as_input(x, device, turn + i) for i, x in enumerate(operands)], out.tensor)
        wide = tuple(x.astype(np.float64) if dtype.is_floating_point else x for x in operands)
        (expected,) = evaluate(op.reference, wide, {})
        check_output(out, expected, Bound(op.tests.tolerance), f"{family} {name} of {len(operands[0])} {dtype.name}")


def _operands(op: OpDef, dtype: DType) -> tuple[np.ndarray, ...]:
    """Return the elements of all samples of an op in a dtype, as vectors."""
    calls = [c for c in sample_calls(op, dtype) if c.computes]
    columns = zip(*[_flat(call, dtype) for call in calls], strict=True)
    return tuple(np.concatenate(column)[-_MOST:] for column in columns)


def _flat(call: OpCall, dtype: DType) -> list[np.ndarray]:
    arrays = np.broadcast_arrays(*[np.asarray(v).astype(dtype.numpy) for v in call.values])
    return [np.ascontiguousarray(a).reshape(-1) for a in arrays]


def reduction(device: Device, name: str) -> None:
    """Check a reduction over the last axis in all dtypes that it accepts."""
    kind = {"any": ("bool",), "all": ("bool",), "mean": ("float",)}.get(name, ("bool", "float", "int", "uint"))
    for turn, dtype in enumerate(d for d in dtypes.ALL if d in device.capabilities.compute and d.kind in kind):
        x = draw(np.random.default_rng(SEED), (_ROWS, _COLUMNS), dtype, -3.0, 3.0)
        x[0], x[1] = x.max(), x.min()
        out = guarded_output(dtype, (_ROWS,), device, turn)
        call_member(device.backend.reduce, name, as_input(x, device, turn), out.tensor)
        wide = x.astype(np.float64) if dtype.is_floating_point else x
        (expected,) = evaluate(OPS[name].reference, (wide,), {"axis": -1, "keepdims": False})
        magnitudes = np.abs(wide).mean(-1) if name == "mean" else None
        bound = Bound(OPS[name].tests.tolerance, _COLUMNS if name == "mean" else 0, magnitudes)
        check_output(out, expected, bound, f"reduce {name} of {dtype.name}{[_ROWS, _COLUMNS]}")
