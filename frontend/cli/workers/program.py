"""Runs a user's program in this process, as Python does."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from polyhal.cli.reporting import INTERNAL, report
from polyhal.default_device import set_default_device
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError
from polyhal.hal.system.discovery.registry import registry


def run_program(script: Path, arguments: Sequence[str], device: Device | str | None = None) -> dict[str, Any]:
    """Run a program as `python SCRIPT ARGUMENTS` does, on a default device; None stands for the best one.

    Returns its names. Restores `sys.argv`, `sys.path` and the default device. The program's errors pass through. Raises
    DeviceUnavailableError.
    """
    argv, path, default = sys.argv, list(sys.path), registry().chosen_default
    set_default_device(device)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        return runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path = argv, path
        set_default_device(default)


def print_failure(error: Exception) -> int:
    """Print the traceback of an error of the program, from its own first line, and return the exit code of a failed program.

    Errors of Polyhal are one sentence with the program's line. Errors from before the program began are raised again.
    """
    trace = of_program(error.__traceback__)
    if isinstance(error, PolyhalError) and trace is not None:
        return report(error, _last_line(trace))
    if trace is None and not isinstance(error, SyntaxError):
        raise error
    traceback.print_exception(error.with_traceback(trace))
    return INTERNAL


def of_program(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in a program run by `runpy`; None if the program did not begin."""
    while trace is not None and not _is_runpy(trace):
        trace = trace.tb_next
    while trace is not None and _is_runpy(trace):
        trace = trace.tb_next
    return trace


def _last_line(trace: TracebackType) -> str:
    """Return the file and line of the last frame in the file in which a traceback begins."""
    file = trace.tb_frame.f_code.co_filename
    lines = [line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == file]
    return f"{file}:{lines[-1]}"


def _is_runpy(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith("<frozen runpy")


def exit_status(code: str | int | None) -> int:
    """Return the exit code of a program; a text, as in `sys.exit("text")`, is printed."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1
