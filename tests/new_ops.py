"""Runs a program in a process whose package of ops has one more file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
_DISCOVER = """
import pkgutil
import sys

walk = pkgutil.walk_packages


def walk_with_the_new_file(path, prefix, *others):
    if prefix == "polyhal.hal.ops.":
        path.append(sys.argv[1])
    return walk(path, prefix, *others)


pkgutil.walk_packages = walk_with_the_new_file
"""


def run_with(declaration: str, program: str, folder: Path) -> None:
    """Declare ops in a file in `folder` and run a program, whose statements raise errors where they should not."""
    (folder / "demo_ops.py").write_text(declaration)
    command = [sys.executable, "-c", _DISCOVER + program, str(folder)]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
