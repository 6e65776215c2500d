"""How ops are resolved on contiguous tensors, without running them: what tables of ops say.

The forward check sees each op in whatever memory layout its rotation has come to, which is right for finding faults and
wrong for telling people what to expect.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import KernelBuildError, UnsupportedOpError
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.testing.kit.isolation import policies
from polyhal.hal.testing.kit.scope import Scope
from polyhal.hal.testing.kit.values import Call, is_number, runnable


def steps(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> Counter[ResolutionStep]:
    """How often which step is taken for the samples of `op` in `dtype` that are in scope."""
    with policies(POLYHAL_FALLBACK="allow"):
        found = (_step(device, call) for call in runnable(device, op, dtype, scope))
        return Counter(s for s in found if s is not None and s is not ResolutionStep.NOTHING)


def _step(device: Device, call: Call) -> ResolutionStep | None:
    specs: list[Any] = []
    for value in call.values:
        if isinstance(value, np.ndarray):
            specs.append(contiguous(as_dtype(value.dtype), value.shape))
        else:
            specs.append(type(value) if is_number(value) else None)
    try:
        plan = device.planner.plan(call.op, tuple(specs), dispatch.freeze(tuple(call.params.values())))
    except (UnsupportedOpError, KernelBuildError):  # a run of the check says so, and why
        return None
    return plan.resolution.step
