"""A ring of page-locked host memory, from which a discrete card copies at bus bandwidth."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div, round_up

_CHUNK = 8 * 2**20
_CHUNKS = 3
_ALIGNMENT = 64
"""Bytes between the starts of small pieces in a chunk."""


class _Transfer(Protocol):
    """Enqueued copies."""

    def wait(self) -> object:
        """Block until the copies are done."""


Enqueue = Callable[[np.ndarray, int], Callable[[], _Transfer]]
"""Function that enqueues a copy of staged bytes to or from the device; the number is their first byte of the transfer.

It returns a function that returns the copy, or all copies so far of the same queue, in order to wait for them.
"""


class PinnedRing:
    """A ring of pinned chunks (double buffering): the host copies one while the bus transfers another."""

    def __init__(self, allocate: Callable[[int], np.ndarray]) -> None:
        """Allocate the chunks with `allocate(nbytes)`."""
        self._chunks = [allocate(_CHUNK) for _ in range(_CHUNKS)]
        self._transfers: list[list[_Transfer]] = [[] for _ in range(_CHUNKS)]
        self._open: dict[Hashable, Callable[[], _Transfer]] = {}
        """The last copy from the present chunk by queue."""
        self._present = 0
        self._used = 0
        """Bytes of the present chunk that are taken."""
        self._lock = threading.Lock()

    def _take(self, nbytes: int) -> np.ndarray:
        """Return staging memory in the present chunk, else in the next one, after waiting for its last transfers."""
        if self._used + nbytes > _CHUNK:
            self._transfers[self._present] = [last() for last in self._open.values()]
            self._open.clear()
            self._present = (self._present + 1) % _CHUNKS
            for transfer in self._transfers[self._present]:
                transfer.wait()
            self._transfers[self._present] = []
            self._used = 0
        start, self._used = self._used, round_up(self._used + nbytes, _ALIGNMENT)
        return self._chunks[self._present][start : start + nbytes]

    def write(self, src: np.ndarray, copy: Enqueue, queue: Hashable) -> None:
        """Copy `src` to the device chunk by chunk. Returns when all of it is in pinned memory or on the device.

        The copies of equal queues run in order, so that small ones share a chunk and one event.
        """
        with self._lock:
            for start in range(0, src.nbytes, _CHUNK):
                piece = src[start : start + _CHUNK]
                staged = self._take(piece.nbytes)
                np.copyto(staged, piece)
                self._open[queue] = copy(staged, start)

    def read(self, dst: np.ndarray, copy: Enqueue) -> None:
        """Fill `dst` from the device chunk by chunk, with up to `_CHUNKS` transfers in flight."""
        with self._lock:
            count = ceil_div(dst.nbytes, _CHUNK)
            transfers: deque[tuple[int, np.ndarray, _Transfer]] = deque()
            for number in range(count + _CHUNKS - 1):
                if number < count:
                    start = number * _CHUNK
                    staged = self._take(_CHUNK)[: dst.nbytes - start]
                    transfers.append((start, staged, copy(staged, start)()))
                if transfers and (number >= _CHUNKS - 1 or number >= count):
                    start, staged, transfer = transfers.popleft()
                    transfer.wait()
                    np.copyto(dst[start : start + staged.nbytes], staged)
