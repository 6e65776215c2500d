"""Indices out of range, found before a kernel reads them: on CPUs, and on any device in debug mode.

A kernel cannot raise an error. On a CPU, reading the indices first costs little; elsewhere it would wait for the device, so it
is a setting (`hal/settings/debug.py`). Only eager calls are checked: the values of a recorded step are not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.errors import message
from polyhal.hal.planning.plan import OpPlan
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Ref
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import IndexRange


def with_index_check(
    device: Device, op: OpDef, specs: tuple[Any, ...], params: tuple[Any, ...], plan: OpPlan
) -> OpPlan:
    """The plan of an op, with a look at its indices before each run if the op declares them and the device allows it."""
    checked = settings.index_checks == "all" or (settings.index_checks == "cpu" and device.info.type is DeviceType.CPU)
    if op.index_range is None or not checked:
        return plan
    bound = op.bind(params)
    op.infer(specs, bound)
    allowed = op.index_range(specs, bound)

    def run(inputs: Any, outputs: Any) -> None:
        _check(device, op.name, allowed, inputs[allowed.input])
        plan.run(inputs, outputs)

    return OpPlan(plan.outputs, run, plan.resolution, tuple_result=plan.tuple_result)


def _check(device: Device, op: str, allowed: IndexRange, index: Ref) -> None:
    """Raise IndexError for an index outside the range."""
    values = device.download(index)
    if allowed.ignored is not None:
        values = values[values != allowed.ignored]
    if not values.size:
        return
    low, high = int(values.min()), int(values.max())
    if low < allowed.low or high >= allowed.high:
        wrong = low if low < allowed.low else high
        where = np.argwhere(values == wrong)[0].tolist() if allowed.ignored is None else None
        position = "" if not where else f" at {where}"
        raise IndexError(
            message(
                op, f"index {wrong}{position} is out of range", expected=f"{allowed.low} to {allowed.high - 1}",
                fix=f"look at input {allowed.input} ({device})",
            )
        )  # fmt: skip
