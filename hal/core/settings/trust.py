"""Trust in cached files: compiled programs, and libraries listed in files, run in this process.

A folder is trusted if it belongs to this user or to the system's administrator and no other user can write to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
LARGEST = 1 << 30
"""Maximum bytes of a file that is read whole."""


def distrust(folder: Path) -> str:
    """Return the reason why other users may have written files in `folder`; empty if they cannot, or it does not exist.

    A folder of this user with write permission for others is repaired by removing the permission.
    """
    if not hasattr(os, "geteuid"):
        return ""  # on Windows, folders of a user inherit their rights from the profile
    try:
        status = os.stat(folder)
    except OSError:
        return ""
    if not stat.S_ISDIR(status.st_mode):
        return ""  # its content is unusable
    owner = os.geteuid()
    if status.st_uid not in (owner, 0):
        return f"{folder} belongs to user {status.st_uid}, not to {owner}"
    if not status.st_mode & _OTHERS:
        return ""
    if status.st_uid == owner:
        with contextlib.suppress(OSError):
            os.chmod(folder, stat.S_IMODE(status.st_mode) & ~_OTHERS)
            return ""
    return f"others can write to {folder}"


def private_folder(folder: Path) -> Path:
    """Create a folder if it is missing, and return it. Raises PermissionError for one that is not trusted, and OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if problem := distrust(folder):
        raise PermissionError(errno.EACCES, problem, str(folder))
    return folder


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor. Raises OSError, also for pipes and devices."""
    # Without O_NONBLOCK, opening a FIFO would wait for its writer.
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is a pipe, a device or a folder; expected a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises OSError, also for one of more than 1 GiB."""
    with os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise OSError(errno.EFBIG, f"has more than {LARGEST} bytes", str(path))
        return file.read()
