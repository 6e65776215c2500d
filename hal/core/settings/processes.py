"""Detection of files left behind by ended processes: the file names contain host and process."""

from __future__ import annotations

import os
import platform
import re
import signal

HOST = re.sub(r"[^A-Za-z0-9]", "_", platform.node()) or "host"
"""Name of this machine, as part of file names."""


def mark() -> str:
    """Return the current process, as part of a file's name or as its content."""
    return f"{HOST}-{os.getpid()}"


def has_ended(marked: str) -> bool:
    """Return whether `marked`, a result of `mark`, is an ended process of this machine; False if unknown."""
    host, _, number = marked.rpartition("-")
    if host != HOST or not number.isdecimal() or os.name != "posix":
        return False
    return not is_running(int(number))


def is_running(number: int) -> bool:
    """Return whether a process of this machine has that number, which may be an invalid one from a file. POSIX only."""
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's process
        return True
    return True


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_text(number: int) -> str:
    """Return a signal by number and name, with its usual sender."""
    name = signal_name(number)
    cause = {
        "SIGKILL": "by a person, a batch system's limit, or the system when memory ran out",
        "SIGSEGV": "a crash, often of a driver",
        "SIGABRT": "a crash, often of a driver",
        "SIGBUS": "a crash; /dev/shm may be full",
    }.get(name, "")
    if cause:
        return f"signal {number} ({name}: {cause})"
    return f"signal {number} ({name})" if name.startswith("SIG") else name
