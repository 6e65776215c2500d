"""Staging memory for asynchronous copies, reused from copy to copy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Block = TypeVar("Block")
_SMALLEST = 1 << 12
_MOST_IDLE = 1 << 26


class StagingPool(Generic[Block]):
    """Blocks of staging memory by size. Thread-safe."""

    def __init__(self, allocate: Callable[[int], Block], most_idle: int = _MOST_IDLE) -> None:
        """Allocate blocks with `allocate(nbytes)`. At most `most_idle` free bytes are kept for later copies."""
        self._allocate = allocate
        self._most_idle = most_idle
        self._free: dict[int, list[Block]] = {}
        self._idle = 0
        """Free bytes."""
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Block:
        """Return a block of at least `nbytes`."""
        size = max(_SMALLEST, 1 << (nbytes - 1).bit_length())
        if size > self._most_idle:  # not kept for reuse
            size = nbytes
        with self._lock:
            if blocks := self._free.get(size):
                self._idle -= size
                return blocks.pop()
        return self._allocate(size)

    def give(self, block: Block, size: int) -> bool:
        """Keep a block of `size` bytes for a later copy. Returns False, without keeping it, if too many bytes are free."""
        with self._lock:
            if self._idle + size > self._most_idle:
                return False
            self._free.setdefault(size, []).append(block)
            self._idle += size
            return True
