"""Export of a captured step as a C99 project for one OpenCL device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyhal.export import c_text
from polyhal.export.c_files import is_dense
from polyhal.export.c_header import example, header
from polyhal.export.c_tables import c_step
from polyhal.export.program import NamedNumber, ProgramLaunch, StepProgram
from polyhal.export.recording import record_program
from polyhal.export.retargeting import refuse
from polyhal.graphs.selection import recorded_step
from polyhal.hal.core.settings.atomic import replacing
from polyhal.hal.device import Device
from polyhal.hal.errors import ExportError, message
from polyhal.hal.launch_descriptions import NamesDevice

_TARGET = "opencl"
_RUNTIME = "polyhal.export.c_runtime"


def c(
    step: Any,
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    embed: bool = False,
    device: Device | str | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Path:
    """Write a captured step as a C99 project that needs a compiler and an OpenCL driver, but neither Python nor this library.

    `step` is as for `record_program`: a function of `polyhal.jit`, a block of `polyhal.capture`, or a step or file of
    `save_graph`; it trains if the function trains. The kernels are those that the step runs on `device`, by default its own,
    which must be an OpenCL device; the C program uses a device of the same name. `name`, by default the function's, begins the
    names of C's functions. Kernels and weights are files in the folder, or with `embed` parts of the C source. `inputs` and
    `outputs` name arguments and results.

    Returns the folder, whose files are replaced. Raises ExportError, which lists everything that cannot be exported,
    CaptureError for a step that is not recorded, ShapeError for another number of names, and ValueError for a `name` that C
    does not accept or that a file of every export has.
    """
    opened = _device_of(step) if device is None else Device(device) if isinstance(device, str) else device
    backend: object = opened.backend
    if not isinstance(backend, NamesDevice):
        problem = f"{opened} does not run OpenCL C"
        raise ExportError(message("export", problem, expected="an OpenCL device", fix='pass device="opencl"'))
    prefix = name or getattr(step, "__name__", "") or "step"
    if not c_text.is_identifier(prefix):
        raise ValueError(message("export", f"the name is {prefix!r}", expected="an identifier of C, such as step"))
    if prefix.lower() in {"main", *(Path(entry.name).stem for entry in files(_RUNTIME).iterdir())}:
        problem = f"the name is {prefix!r}, as of a file of every export"
        raise ValueError(message("export", problem, fix='pass another one, such as name="step"'))
    program = record_program(step, opened, _TARGET, name=prefix, inputs=inputs, outputs=outputs)
    refuse(_problems(program), _TARGET)
    target = Path(folder)
    made = c_step(program, backend.device_names(), prefix, embed=embed)
    numbers = [n.name for n in program.numbers if isinstance(n, NamedNumber)]
    texts = {
        f"{prefix}.c": made.source,
        f"{prefix}.h": header(program, prefix, numbers),
        "main.c": example(program, prefix),
    }
    contents = {path: text.encode() for path, text in texts.items()} | made.files
    for entry in files(_RUNTIME).iterdir():
        if entry.name == "CMakeLists.txt":
            text = entry.read_text(encoding="utf-8").replace("@STEP_UPPER@", prefix.upper()).replace("@STEP@", prefix)
            contents[entry.name] = text.encode()
        elif entry.name.endswith((".c", ".h")):
            contents[f"runtime/{entry.name}"] = entry.read_bytes()
    for path, content in contents.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(target / path) as file:
            file.write(content)
    return target


def _device_of(step: Any) -> Device:
    """Return the device on which a step was recorded; the default device for a file."""
    if isinstance(step, (str, os.PathLike)):
        return Device.default()
    nodes = recorded_step(step).captured.graph.nodes
    return next((n.device for n in nodes if n.origin is not None), Device.default())


def _problems(program: StepProgram) -> list[str]:
    """Return why C cannot run a program."""
    problems = [
        f"the {kind} {x.name} has strides {list(x.strides)}: make it contiguous"
        for kind, tensors in (("input", program.inputs), ("output", program.outputs))
        for x in tensors
        if not is_dense(x)
    ]
    problems += ["a buffer is copied between launches" for c in program.commands if not isinstance(c, ProgramLaunch)]
    return problems
