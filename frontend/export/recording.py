"""Recording of a captured step as a program for a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.export.building import build_program
from polyhal.export.program import StepProgram
from polyhal.export.retargeting import retarget
from polyhal.hal.device import Device


def record_program(
    step: Any,
    device: Device | str,
    target: str,
    *,
    name: str = "",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> StepProgram:
    """Return a captured step as a program for devices like `device`.

    `step` is a function of `polyhal.jit` that was recorded for one signature, a block of `polyhal.capture`, a step of
    `load_graph`, or the path of a file of `save_graph`; it may have been recorded on another device. `device` only records: its
    command buffers describe their launches (`hal.launch_descriptions`). State has its present values, and random numbers
    continue where they are. 64-bit integers become narrower ones if the device has none. `inputs` and `outputs` name the
    arguments and the results, in order.

    Raises ExportError, which lists all work that needs Python or another device while the step runs, CaptureError for a step
    that is not recorded, and ShapeError for another number of names.
    """
    opened = Device(device) if isinstance(device, str) else device
    title = name or getattr(step, "__name__", "") or "step"
    return build_program(retarget(step, opened, target), target, title, inputs, outputs)
