"""Processes of the same Python, for work with drivers that may crash or hang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from polyhal.hal.errors import PolyhalError


class NoPythonError(PolyhalError):
    """No Python executable can be started."""


def command(module: str, argument: str) -> list[str]:
    """Return the command line that runs a module with one argument. Raises NoPythonError."""
    executable = sys.executable or ""
    # In a program that embeds Python, this is the program, which would be started a second time.
    if getattr(sys, "frozen", False) or not Path(executable).name.lower().startswith(("python", "pypy")):
        raise NoPythonError(f"no Python executable for a process: sys.executable is {executable!r}")
    return [executable, "-P", "-m", module, argument]


def environment(**settings: str) -> dict[str, str]:
    """Return the environment variables of such a process: the path of this one for modules, and these settings."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path), **settings}
