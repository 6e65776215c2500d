"""Runs a user's program in this process under an observer of its ops."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import polyhal
from polyhal.hal import dispatch
from polyhal.hal.checks.modes import observing
from polyhal.hal.checks.observer import Observer
from polyhal.hal.checks.op_record import UncapturedExecutor
from polyhal.hal.checks.scoped import ScopedExecutor


def run_program(
    script: Path, arguments: Sequence[str], observer: Observer, *, device: str | None = None, captured: bool = True
) -> int:
    """Run a program as `python SCRIPT ARGUMENTS` does, and return its exit code.

    `device` becomes its default device. Without `captured`, captured functions run op by op. Errors of the program pass
    through.
    """
    if device is not None:
        os.environ["POLYHAL_DEVICE"] = polyhal.Device(device).name
        polyhal.set_default_device(device)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    executor = ScopedExecutor(dispatch.EAGER) if captured else UncapturedExecutor(dispatch.EAGER)
    try:
        with observing(observer), dispatch.executing(executor):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as exit_:
        if exit_.code is None or isinstance(exit_.code, int):
            return exit_.code or 0
        print(exit_.code, file=sys.stderr)
        return 1
    return 0
