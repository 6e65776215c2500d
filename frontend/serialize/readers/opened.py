"""Files that are opened once and read by offset, so that a later file of the same name is never mixed with the first."""

from __future__ import annotations

import errno
import io
import os
import threading
import weakref
from pathlib import Path

from polyhal.hal.core.settings.trust import open_regular
from polyhal.hal.errors import CorruptFileError, message

_BLOCK = 1 << 30
"""Maximum bytes per call: one call reads at most 2 GiB on Linux."""


class OpenedFile:
    """A regular file, open for reading. It is closed with the last reference to it."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError, and CorruptFileError unless it is a regular file: reading others may block."""
        self.path = path
        try:
            self._descriptor = open_regular(path)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            problem = f"{path} is a pipe or a device"
            raise CorruptFileError(message("load", problem, expected="a file or a folder")) from error
        weakref.finalize(self, os.close, self._descriptor)
        self._lock = threading.Lock()
        self.size = os.fstat(self._descriptor).st_size

    def fileno(self) -> int:
        """Return the descriptor, for mapping the file."""
        return self._descriptor

    def read(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Return `nbytes` bytes from `offset`, by default all to the end; fewer where the file ends."""
        wanted = max(0, min(self.size - offset if nbytes is None else nbytes, self.size - offset))
        parts = []
        while wanted > 0 and (part := self._read_once(offset, min(wanted, _BLOCK))):
            parts.append(part)
            offset, wanted = offset + len(part), wanted - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_once(self, offset: int, nbytes: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, nbytes, offset)
        with self._lock:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, nbytes)

    def stream(self) -> io.BufferedReader:
        """Return the file as a seekable stream with a position of its own."""
        return io.BufferedReader(_Stream(self))


class _Stream(io.RawIOBase):
    """A raw stream over an opened file, with a position of its own."""

    def __init__(self, file: OpenedFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        if start + offset < 0:
            raise OSError(22, "a position before the beginning of the file")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
