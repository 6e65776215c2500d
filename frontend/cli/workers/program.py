"""Runs a user's program in this process, as Python does."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_program(script: Path, arguments: Sequence[str]) -> None:
    """Run a program as `python SCRIPT ARGUMENTS` does, then restore `sys.argv` and `sys.path`. Its errors pass through."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path = argv, path


def exit_status(code: str | int | None) -> int:
    """Return the exit code of a program; a text, as in `sys.exit("text")`, is printed."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1
