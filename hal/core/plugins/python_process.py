"""Subprocesses with the same Python, for work with drivers that may crash or hang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from polyhal.hal.errors import PolyhalError


class NoPythonError(PolyhalError):
    """No Python executable is available."""


def has_python() -> bool:
    """Return whether a Python process can be started.

    In a program that embeds Python, `sys.executable` is the program itself.
    """
    name = Path(sys.executable or "").name.lower()
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module. Raises NoPythonError."""
    if not has_python():
        raise NoPythonError(f"no Python executable for a process: sys.executable is {sys.executable!r}")
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**settings: str) -> dict[str, str]:
    """Return the environment variables of such a process: this process's module path, and `settings`."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path), **settings}
