"""The memory pool of a device: free blocks per size bucket in front of the backend's allocator.

Of the free blocks, the one allocated first is taken first. A program that repeats itself, as training steps do, then gets
the same blocks at the same points whatever the order in which it let go of them, so that backends that bind memory to
kernels in advance find their bindings again.

Freed blocks are reused at once, even while work on them is still enqueued: a backend runs its work in the order in which
it was enqueued, so the new owner's kernels come after the old owner's.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from heapq import heappop, heappush

from polyhal.hal.buffer import Buffer
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.protocol import ComputeBackend, Handle

_SMALLEST = 256
_STEPS = 8
"""Buckets per doubling: at most 1/8 of a block is wasted."""


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes and counts of one pool. `used` is held by tensors, `reserved` includes free blocks kept for reuse."""

    used: int
    reserved: int
    peak: int
    largest_free: int
    allocations: int
    reuses: int


def bucket(nbytes: int) -> int:
    """The block size that serves a request of `nbytes`; 0 for 0."""
    if nbytes <= _SMALLEST:
        return _SMALLEST if nbytes else 0
    step = max((1 << ((nbytes - 1).bit_length() - 1)) // _STEPS, _SMALLEST)
    return -(-nbytes // step) * step


class Pool:
    """Blocks of device memory by bucket size."""

    def __init__(self, backend: ComputeBackend, device_name: str) -> None:
        self._backend = backend
        self._name = device_name
        # Heaps of (number, handle). Their operations on tuples of unique integers run no Python code and are thus atomic, so
        # blocks may come back from any thread or from the collector.
        self._free: dict[int, list[tuple[int, Handle]]] = {}
        # When tensors die in a reference cycle, a handle that only they refer to is finalised with them, and before it
        # comes back here. So every handle is held here too.
        self._owned: dict[int, Handle] = {}
        self.used = 0
        self.reserved = 0
        self.peak = 0
        self.allocations = 0
        self.reuses = 0

    def take(self, size: int) -> Buffer:
        """A block of `size` bytes, a value of `bucket`. Raises OutOfMemoryError."""
        if not size:
            return Buffer(None, 0, self, 0)
        try:
            block = heappop(self._free[size])
            self.reuses += 1
        except (KeyError, IndexError):
            block = self._allocate(size)
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        return Buffer(block[1], size, self, block[0])

    def give(self, number: int, handle: Handle, size: int) -> None:
        """Take a block back; called by the buffer that owned it."""
        self.used -= size
        heappush(self._free[size], (number, handle))

    def _allocate(self, size: int) -> tuple[int, Handle]:
        self._free.setdefault(size, [])
        try:
            handle = self._backend.allocate(size)
        except OutOfMemoryError:
            gc.collect()
            self.drain()
            try:
                handle = self._backend.allocate(size)
            except OutOfMemoryError as error:
                raise self._out_of_memory(size) from error
        self.allocations += 1
        self.reserved += size
        self._owned[self.allocations] = handle
        return self.allocations, handle

    def _out_of_memory(self, size: int) -> OutOfMemoryError:
        limit = self._backend.capabilities.limits.max_allocation
        block = f", the largest single block is {limit / 2**20:.2f} MiB" if limit else ""
        return OutOfMemoryError(
            message(
                None,
                f"no memory for {size / 2**20:.2f} MiB: {self.used / 2**20:.2f} MiB are in use and "
                f"{self._backend.memory_available() / 2**20:.2f} MiB are left{block}",
                fix="use a smaller batch, or drop tensors that are no longer needed",
                device=self._name,
            )
        )

    def drain(self) -> None:
        """Return every free block to the device."""
        self._backend.synchronize()
        for size, blocks in self._free.items():
            while blocks:
                number, handle = blocks.pop()
                del self._owned[number]
                self._backend.deallocate(handle)
                self.reserved -= size

    def stats(self) -> MemoryStats:
        largest = max((size for size, blocks in self._free.items() if blocks), default=0)
        return MemoryStats(self.used, self.reserved, self.peak, largest, self.allocations, self.reuses)

    def reset_peak(self) -> None:
        """Start measuring the peak anew, from what is used now."""
        self.peak = self.used
