"""Runs of offline compilers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_TIMEOUT = 300.0
"""Seconds. The largest kernels take a few."""


class CompilerRefusalError(Exception):
    """A compiler did not accept a program; the message is what it printed."""


def run(executable: Path, arguments: Sequence[str], folder: Path, text: str = "") -> tuple[str, str]:
    """Run a compiler in a folder, with a text on standard input. Return its output, and its messages.

    Raises CompilerRefusalError if it fails, does not start, or takes minutes.
    """
    try:
        done = subprocess.run(
            [str(executable), *arguments], input=text, capture_output=True, text=True, cwd=folder, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerRefusalError(str(error)) from error
    if done.returncode:
        raise CompilerRefusalError(done.stderr + done.stdout)
    return done.stdout, done.stderr
