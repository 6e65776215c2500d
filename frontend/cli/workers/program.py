"""Runs a user's program in this process, as Python does."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from polyhal.default_device import set_default_device
from polyhal.hal.device import Device
from polyhal.hal.system.discovery.registry import registry


def run_program(script: Path, arguments: Sequence[str], device: Device | str | None = None) -> None:
    """Run a program as `python SCRIPT ARGUMENTS` does, on a default device; None stands for the best one.

    Restores `sys.argv`, `sys.path` and the default device. The program's errors pass through. Raises DeviceUnavailableError.
    """
    argv, path, default = sys.argv, list(sys.path), registry().chosen_default
    set_default_device(device)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path = argv, path
        set_default_device(default)


def exit_status(code: str | int | None) -> int:
    """Return the exit code of a program; a text, as in `sys.exit("text")`, is printed."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1
