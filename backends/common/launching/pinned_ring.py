"""A ring of page-locked host memory, from which a discrete card copies at bus bandwidth."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div

_CHUNK = 8 * 2**20
_CHUNKS = 3


class _Transfer(Protocol):
    """An enqueued copy."""

    def wait(self) -> object:
        """Block until the copy is done."""


Enqueue = Callable[[np.ndarray, int], _Transfer]
"""Function that enqueues a copy of staged bytes to or from the device; the number is their first byte of the transfer."""


class PinnedRing:
    """A ring of pinned chunks (double buffering): the host copies one while the bus transfers another."""

    def __init__(self, allocate: Callable[[int], np.ndarray]) -> None:
        """Allocate the chunks with `allocate(nbytes)`."""
        self._chunks = [allocate(_CHUNK) for _ in range(_CHUNKS)]
        self._transfers: list[_Transfer | None] = [None] * _CHUNKS
        self._next = 0
        self._lock = threading.Lock()

    def _acquire(self) -> int:
        """Return the index of the next chunk, after waiting for its last transfer."""
        index = self._next
        self._next = (index + 1) % _CHUNKS
        transfer = self._transfers[index]
        if transfer is not None:
            transfer.wait()
            self._transfers[index] = None
        return index

    def write(self, src: np.ndarray, copy: Enqueue) -> None:
        """Copy `src` to the device chunk by chunk. Returns when all of it is in pinned memory or on the device."""
        with self._lock:
            for start in range(0, src.nbytes, _CHUNK):
                piece = src[start : start + _CHUNK]
                index = self._acquire()
                staged = self._chunks[index][: piece.nbytes]
                np.copyto(staged, piece)
                self._transfers[index] = copy(staged, start)

    def read(self, dst: np.ndarray, copy: Enqueue) -> None:
        """Fill `dst` from the device chunk by chunk, with up to `_CHUNKS` transfers in flight."""
        with self._lock:
            count = ceil_div(dst.nbytes, _CHUNK)
            transfers: deque[tuple[int, int, _Transfer]] = deque()
            for number in range(count + _CHUNKS - 1):
                if number < count:
                    start = number * _CHUNK
                    index = self._acquire()
                    staged = self._chunks[index][: min(_CHUNK, dst.nbytes - start)]
                    transfers.append((start, index, copy(staged, start)))
                if transfers and (number >= _CHUNKS - 1 or number >= count):
                    start, index, transfer = transfers.popleft()
                    transfer.wait()
                    stop = min(start + _CHUNK, dst.nbytes)
                    np.copyto(dst[start:stop], self._chunks[index][: stop - start])
