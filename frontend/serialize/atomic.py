"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from polyhal.hal.settings import processes

_UNFINISHED = re.compile(r"\..+\.(\w+-\d+)\.[0-9a-f]{8}\.tmp")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing, which replaces `path` when the block ends without an error.

    The data is on the disk before the old file is replaced. After an error (a full disk, an interrupt) the old file is
    untouched and the new one is removed. A killed process leaves its new file behind, which the next call removes.
    """
    _sweep(path.parent)
    beside = path.with_name(f".{path.name}.{processes.mark()}.{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            beside.chmod(path.stat().st_mode & 0o777)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _sweep(folder: Path) -> None:
    """Remove the unfinished files of processes of this machine that have ended."""
    for path in folder.glob(".*.tmp"):
        match = _UNFINISHED.fullmatch(path.name)
        if match and processes.has_ended(match[1]):
            with suppress(OSError):
                path.unlink()


def sync_folder(path: Path) -> None:
    """Flush the entries of the folder, if the system can open folders (Windows cannot)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems refuse this; the file is replaced already.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
