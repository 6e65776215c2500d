"""Processes of the same Python, for work with drivers that may crash or hang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from polyhal.hal.errors import PolyhalError


class NoPythonError(PolyhalError):
    """There is no Python executable to start."""


def command(module: str, argument: str) -> list[str]:
    """Return the command line that runs a module with one argument. Raises NoPythonError."""
    executable = sys.executable or ""
    # A program that embeds Python names itself here, and would be started a second time.
    if getattr(sys, "frozen", False) or not Path(executable).name.lower().startswith(("python", "pypy")):
        raise NoPythonError(f"there is no Python to start a process with: {executable!r}")
    return [executable, "-P", "-m", module, argument]


def environment(**settings: str) -> dict[str, str]:
    """Return the variables of such a process: it finds the same modules, and computes with these settings."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path), **settings}
