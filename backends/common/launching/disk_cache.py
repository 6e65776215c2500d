"""Disk cache of compiled programs, shared by all processes.

An entry is one file, named by a hash of everything that the program depends on. The file begins with a hash of its
content, so a truncated or altered file is detected and deleted. Writers replace files atomically, so no lock is needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from polyhal.hal.core.settings import atomic, trust

_MAGIC = b"PHC1"
_DIGEST = 32
_SUFFIX = ".bin"


class DiskCache:
    """A folder of at most about `limit` bytes, with least-recently-used eviction.

    A failure to read or write counts as a miss: a full or read-only disk must not stop a computation.
    """

    def __init__(self, folder: Path, limit: int = 512 * 2**20) -> None:
        self._folder = folder
        self._limit = limit
        self._written = 0
        self._swept = False
        self._trusted: bool | None = None
        self.failure = ""
        """Reason why the last write failed, for `doctor`; empty if none failed."""

    @staticmethod
    def key(parts: Iterable[str]) -> str:
        """Return the file name of an entry that depends on these strings."""
        digest = hashlib.sha256()
        for part in parts:
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "little"))
            digest.update(encoded)
        return digest.hexdigest()

    def load(self, key: str) -> bytes | None:
        """Return the bytes stored under `key`, or None; delete a damaged entry."""
        path = self._folder / (key + _SUFFIX)
        try:
            if not self._is_trusted():
                return None
            data = trust.read_regular(path)
        except OSError:
            return None
        header = len(_MAGIC) + _DIGEST
        payload = data[header:]
        if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : header] != hashlib.sha256(payload).digest():
            self.discard(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def store(self, key: str, payload: bytes) -> None:
        """Store `payload` under `key`."""
        data = _MAGIC + hashlib.sha256(payload).digest() + payload
        try:
            trust.private_folder(self._folder)
            if not self._swept:
                self._swept = True
                atomic.sweep(self._folder)
            with atomic.replacing(self._folder / (key + _SUFFIX), durable=False) as file:
                file.write(data)
        except OSError as error:
            self.failure = str(error)
            return
        self._written += len(data)
        # Listing the folder is slow, so check its size only after writing a sixteenth of the limit.
        if self._written > self._limit // 16:
            self._written = 0
            self.trim()

    def is_empty(self) -> bool:
        """Return whether there are no entries."""
        with contextlib.suppress(OSError):
            return next(self._folder.glob("*" + _SUFFIX), None) is None
        return True

    def _is_trusted(self) -> bool:
        """Return whether only this user can have written entries, which are programs that run in this process."""
        if self._trusted is None:
            self.failure = trust.distrust(self._folder)
            self._trusted = not self.failure
        return self._trusted

    def discard(self, key: str) -> None:
        """Delete an entry."""
        with contextlib.suppress(OSError):
            (self._folder / (key + _SUFFIX)).unlink()

    def trim(self) -> None:
        """Delete the least recently used entries until the folder fits its limit."""
        entries = []
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*" + _SUFFIX):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self._limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
