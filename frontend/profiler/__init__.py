"""Measurements of programs and of captured steps: ops, launches, memory, and the activity of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.scheduler.activity import StepActivity
from polyhal.hal.compile.scheduler.outline import StepOutline
from polyhal.hal.compile.scheduler.outline import outline as _outline
from polyhal.hal.compile.scheduler.profile import StepProfile
from polyhal.hal.system.diagnostics.measurements import MeasuredCall, measured_calls
from polyhal.profiler.profile import Profile, profile, record_function
from polyhal.profiler.records import CallRecord, HostCopy, LaunchRecord, MemorySample, NamedRange, Records
from polyhal.profiler.rows import Row
from polyhal.steps.jit import Jitted

if TYPE_CHECKING:
    from polyhal.hal.device import Device


def step_calls(step: Jitted[..., Any]) -> tuple[MeasuredCall, ...]:
    """Return the ops that the last recorded form of a captured step executes, with the specs of their operands.

    Raises IndexError if the step was not recorded.
    """
    last = step.steps[-1]
    return measured_calls(last.graph, last.executable.graph)


def outline(step: Jitted[..., Any], device: Device) -> StepOutline:
    """Return the outline of the first recorded form of a captured step, on one of its devices.

    Raises IndexError if the step was not recorded.
    """
    return _outline(step.steps[0].executable, device)


__all__ = [
    "CallRecord",
    "HostCopy",
    "Jitted",
    "LaunchRecord",
    "MemorySample",
    "NamedRange",
    "Profile",
    "Records",
    "Row",
    "StepActivity",
    "StepOutline",
    "StepProfile",
    "outline",
    "profile",
    "record_function",
    "step_calls",
]
