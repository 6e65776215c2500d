"""Exclusive locks between processes, which the system releases when their owner ends for any reason."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import FrameType

from polyhal.hal.core.settings import processes

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)  # others may read the text before the locked byte
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_BEYOND = 1 << 30
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""Error codes of file systems without locks."""
_POLL = 0.05
"""Seconds between two attempts."""
_LONGEST_NAME = 300
"""Maximum bytes read from a lock file, which another program may have written."""


class FileLock:
    """A lock file with the name of the process that holds it. The name only serves messages: the system's lock decides.

    On a file system without locks, the name decides: a lock of an ended process of this machine is free. An interrupt
    at any line leaves the lock free or held by this object, and `release` frees it in every state.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.FileIO | None = None
        """Open file that holds the lock. An interrupt could lose the number of a descriptor."""

    def acquire(self) -> bool:
        """Acquire the lock; returns False if it is held elsewhere, in this process or in another. Raises OSError."""
        file = None
        try:
            while True:
                file = io.FileIO(self.path, "a+")
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or self.path.is_symlink():
                    raise OSError(errno.EINVAL, "a lock is a regular file, not a link or a device", str(self.path))
                if not self._is_free(file):
                    file.close()
                    return False
                if self._is_current(file):
                    break
                file.close()  # its previous holder has just removed the file
            file.truncate(0)
            file.write(processes.mark().encode())
            self._file = file
            return True
        except BaseException:  # a full disk, an interrupt
            self._file = file
            self.release()
            raise

    def release(self) -> None:
        """Release the lock and remove the file. No-op if it is not held."""
        try:
            if self._file is not None and not self._file.closed:
                with suppress(OSError):  # the folder may have been removed
                    if self._is_current(self._file):
                        self.path.unlink()
        finally:
            if self._file is not None:
                self._file.close()
            self._file = None

    def __del__(self) -> None:
        file = getattr(self, "_file", None)  # missing if an interrupt has ended `__init__`
        if file is not None:
            file.close()

    @property
    def is_held(self) -> bool:
        """Return whether this object holds the lock."""
        return self._file is not None

    def touch(self) -> None:
        """Update the file's time, to show other processes that the holder is alive."""
        with suppress(OSError):
            os.utime(self.path)

    def holder(self) -> str:
        """Return the holder of the lock, as text for messages."""
        try:
            with self.path.open("rb") as file:
                host, _, number = file.read(_LONGEST_NAME).decode(errors="replace").rpartition("-")
        except OSError:
            return "another process"
        return f"process {number} on {host}" if host and number.isdecimal() else "another process"

    def _is_free(self, file: io.FileIO) -> bool:
        try:
            _lock(file.fileno())
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                    return False
                raise
            file.seek(0)
            text = (file.read(_LONGEST_NAME) or b"").decode(errors="replace")
            return not text or processes.has_ended(text)
        return True

    def _is_current(self, file: io.FileIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), self.path.lstat())
        except FileNotFoundError:
            return False


class ExclusiveBlock:
    """Holds a lock during a block.

    An interrupt can end a block before `__exit__` starts, and the traceback then keeps the lock alive. The next block
    of this process that waits for the lock releases it if the function of the interrupted block has ended.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self._lock = FileLock(path)
        self._patience = patience
        self._frame: FrameType | None = None
        """Frame of the function that contains the block."""
        _BLOCKS.add(self)

    def __enter__(self) -> FileLock:
        self._frame = sys._getframe(1)
        try:
            end = time.monotonic() + self._patience
            while not self._lock.acquire():
                if self._release_abandoned():
                    continue
                if time.monotonic() > end:
                    raise TimeoutError(f"{self._lock.holder()} holds {self._lock.path}")
                time.sleep(_POLL)
            return self._lock
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self._lock.release()
        finally:
            self._lock.release()  # after an interrupt of the first call
            self._frame = None

    def _release_abandoned(self) -> bool:
        """Release the lock if a block of this process holds it after the end of its function. Returns whether one did."""
        path = os.path.abspath(self._lock.path)
        others = [b for b in list(_BLOCKS) if b._lock.is_held and os.path.abspath(b._lock.path) == path]
        running: set[int] = set()
        for frame in sys._current_frames().values() if others else ():
            caller: FrameType | None = frame
            while caller is not None:
                running.add(id(caller))
                caller = caller.f_back
        abandoned = [b for b in others if id(b._frame) not in running]
        for block in abandoned:
            block._lock.release()
        return bool(abandoned)


_BLOCKS: weakref.WeakSet[ExclusiveBlock] = weakref.WeakSet()


def exclusive(path: Path, patience: float) -> ExclusiveBlock:
    """Hold the lock at `path` during a block; wait for it up to `patience` seconds. Raises TimeoutError and OSError."""
    return ExclusiveBlock(path, patience)
