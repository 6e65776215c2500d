"""Resolution of ops on contiguous tensors, found by planning the samples without running them.

The forward checks use each op in rotating memory layouts. That finds faults, but a table of how ops run should show the
common case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import KernelBuildError, UnsupportedOpError
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.system.reference.op_calls import OpCall, is_number
from polyhal.hal.testing.kit.isolation import policies
from polyhal.hal.testing.kit.sample_calls import runnable_calls
from polyhal.hal.testing.kit.scope import Scope

_LETTERS = {
    ResolutionStep.VIEW: "V",
    ResolutionStep.NATIVE: "N",
    ResolutionStep.CORE: "C",
    ResolutionStep.COMPOSED: "D",
    ResolutionStep.HOST: "H",
}


def resolution_steps(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> Counter[ResolutionStep]:
    """Count the resolution steps that the samples of `op` in `dtype` take; empty calls do not count."""
    with policies(POLYHAL_FALLBACK="allow"):
        steps = [_step(device, call) for call in runnable_calls(device, op, dtype, scope)]
    return Counter(s for s in steps if s is not None and s is not ResolutionStep.NOTHING)


def _step(device: Device, call: OpCall) -> ResolutionStep | None:
    """Return the step of one call; None if it cannot be resolved, for a reason that the check reports."""
    specs: list[Any] = []
    for value in call.values:
        if isinstance(value, np.ndarray):
            specs.append(contiguous(as_dtype(value.dtype), value.shape))
        else:
            specs.append(type(value) if is_number(value) else None)
    try:
        plan = device.planner.plan(call.op, tuple(specs), dispatch.freeze(tuple(call.params.values())))
    except (UnsupportedOpError, KernelBuildError):
        return None
    return plan.resolution.step


def step_letters(steps: Iterable[ResolutionStep]) -> str:
    """Return the distinct letters of resolution steps, best first."""
    present = set(steps)
    return "".join(letter for step, letter in _LETTERS.items() if step in present)
