"""Exclusive locks between processes, which the system releases when their owner ends, however it ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from polyhal.hal.settings import processes

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)  # others may read the text, which lies before
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_BEYOND = 1 << 30
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""What file systems without locks answer."""
_POLL = 0.05
"""Seconds between two attempts."""
_LONGEST_NAME = 300
"""Bytes that are read of a lock file, which may be anybody's."""


class FileLock:
    """A lock file that names the process that holds it. The name only serves messages: what counts is the system's lock.

    Where the file system has no locks, the name decides: a lock of a process of this machine that has ended is free.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock; returns False if another holder has it, in this process or in another. Raises OSError."""
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if not self._is_free(descriptor):
                    os.close(descriptor)
                    return False
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
            if self._is_current(descriptor):
                break
            self.release()  # its last holder has removed the file meanwhile
        try:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, processes.mark().encode())
        except BaseException:  # a full disk
            self.release()
            raise
        return True

    def release(self) -> None:
        """Give the lock back and remove the file. Does nothing if it is not held."""
        if self._descriptor is None:
            return
        with suppress(OSError):  # a folder that was removed meanwhile
            if self._is_current(self._descriptor):
                self.path.unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def touch(self) -> None:
        """Note that the holder is at work, for those who look at the file's time."""
        with suppress(OSError):
            os.utime(self.path)

    def holder(self) -> str:
        """Return who holds the lock, as text for messages."""
        try:
            with self.path.open("rb") as file:
                host, _, number = file.read(_LONGEST_NAME).decode(errors="replace").rpartition("-")
        except OSError:
            return "another process"
        return f"process {number} on {host}" if host and number.isdecimal() else "another process"

    def _is_free(self, descriptor: int) -> bool:
        try:
            _lock(descriptor)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                    return False
                raise
            text = os.read(descriptor, _LONGEST_NAME).decode(errors="replace")
            return not text or processes.has_ended(text)
        return True

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False


@contextmanager
def exclusive(path: Path, patience: float) -> Iterator[FileLock]:
    """Hold the lock at `path` during a block; wait for it up to `patience` seconds. Raises TimeoutError and OSError."""
    lock = FileLock(path)
    end = time.monotonic() + patience
    while not lock.acquire():
        if time.monotonic() > end:
            raise TimeoutError(f"{lock.holder()} holds {path}")
        time.sleep(_POLL)
    try:
        yield lock
    finally:
        lock.release()
