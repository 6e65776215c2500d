"""Atomic replacement of files and folders: complete or not at all, even if the process is killed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from polyhal.hal.core.settings import processes

_UNFINISHED = re.compile(r"\..+\.(\w+-\d+)\.[0-9a-f]{8}\.tmp")


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a new file for writing, which replaces `path` when the block ends without an error.

    The data are on the disk before the old file is replaced. After an error (a full disk, an interrupt) the old file is
    untouched and the new one is removed. A killed process leaves its new file behind, which the next call removes.

    Without `durable`, files are neither flushed nor swept: for caches that verify their content and call `sweep` themselves.
    """
    if durable:
        sweep(path.parent)
    beside = _unfinished(path)
    try:
        with beside.open("xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            beside.chmod(path.stat().st_mode & 0o777)
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        _rename_in(error, beside, path)
        raise
    if durable:
        sync_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a folder under a temporary name, renamed to `path` when the block ends without an error.

    So `path` is complete or does not exist. The block must flush its files to the disk. Raises OSError if `path` is a
    file or a non-empty folder when the block ends.
    """
    sweep(path.parent)
    beside = _unfinished(path)
    try:
        beside.mkdir()
        yield beside
        beside.replace(path)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        _rename_in(error, beside, path)
        raise
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder atomically: it is renamed before its content is removed. Raises OSError."""
    beside = _unfinished(path)
    path.replace(beside)
    shutil.rmtree(beside)


def _unfinished(path: Path) -> Path:
    """Return an unused name in the folder of `path` that contains the writing process."""
    return path.with_name(f".{path.name}.{processes.mark()}.{secrets.token_hex(4)}.tmp")


def _rename_in(error: BaseException, beside: Path, path: Path) -> None:
    """Let an error of the system name `path` in the place of the temporary name."""
    if isinstance(error, OSError) and error.filename == str(beside):
        error.filename = str(path)
        del error.filename2  # set to None, it would be printed


def sweep(folder: Path) -> None:
    """Remove the unfinished files and folders of processes of this machine that have ended."""
    for path in folder.glob(".*.tmp"):
        match = _UNFINISHED.fullmatch(path.name)
        if match and processes.has_ended(match[1]):
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def sync_folder(path: Path) -> None:
    """Flush the entries of the folder, if the system can open folders (Windows cannot)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems reject this; the file is already replaced.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
