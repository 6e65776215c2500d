"""Whether the process that left a file behind still runs: the file names its host and its process."""

from __future__ import annotations

import os
import platform
import re

HOST = re.sub(r"[^A-Za-z0-9]", "_", platform.node()) or "host"
"""This machine, as part of file names."""


def mark() -> str:
    """The present process, as part of a file's name or as its contents."""
    return f"{HOST}-{os.getpid()}"


def has_ended(marked: str) -> bool:
    """Whether `marked`, made by `mark`, is a process of this machine that has ended; False if that cannot be known."""
    host, _, number = marked.rpartition("-")
    if host != HOST or not number.isdigit() or os.name != "posix":
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's process
        return False
    return False
