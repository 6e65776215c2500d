"""The memory pool of a device: free blocks per size bucket in front of the backend's allocator.

Of the free blocks, the one allocated first is taken first. A program that repeats itself, as training steps do, then gets
the same blocks at the same points whatever the order in which it let go of them, so that backends that bind memory to
kernels in advance find their bindings again.

Freed blocks are reused at once, even while work on them is still enqueued: a backend runs its work in the order in which
it was enqueued, so the new owner's kernels come after the old owner's.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.memory.buffer import Buffer
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


class _Thread(threading.local):
    """The pool that a thread takes from in place of the device's; None: the device's."""

    pool: Pool | None = None


class Branches:
    """The pools of a device's streams.

    A stream takes its memory from a pool of its own, because its work is not in line with that of other streams. What any
    thread frees while a stream is in use is kept back until that has ended, as its work may still use it.
    """

    def __init__(self) -> None:
        self.all: list[Pool] = []
        self.thread = _Thread()
        self.active = 0
        """How many streams are in use."""
        self.late: list[tuple[int, int, Handle]] = []
        """(size, number, handle) of blocks that were freed meanwhile."""
        self.lock = threading.Lock()


class Pool:
    """Blocks of device memory by bucket size."""

    def __init__(self, backend: ComputeBackend, device_name: str, parent: Pool | None = None) -> None:
        """`parent` is the device's pool where this one is a stream's."""
        self._backend = backend
        self._name = device_name
        self._parent = parent
        # Heaps of (number, handle). Their operations on tuples of unique integers run no Python code and are thus atomic, so
        # blocks may come back from any thread or from the collector.
        self._free: dict[int, list[tuple[int, Handle]]] = {}
        # When tensors die in a reference cycle, a handle that only they refer to is finalised with them, and before it
        # comes back here. So every handle is held here too.
        self._owned: dict[int, Handle] = {}
        self._exact: set[int] = set()
        """Sizes that are no buckets: few requests would find a use for such a block."""
        self.branches = Branches()
        self.used = 0
        self.reserved = 0
        self.peak = 0
        self.allocations = 0
        self.reuses = 0

    def take(self, size: int) -> Buffer:
        """A block of `size` bytes, a value of `bucket`. Raises OutOfMemoryError."""
        if not size:
            return Buffer(None, 0, self, 0)
        if self.branches.active and (branch := self.branches.thread.pool) is not None:
            return branch.take(size)
        try:
            block = heappop(self._free[size])
            self.reuses += 1
        except (KeyError, IndexError):
            block = self._allocate(size)
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        return Buffer(block[1], size, self, block[0])

    def take_exactly(self, nbytes: int) -> Buffer:
        """A block of `nbytes` > 0, for owners that keep it long. When it is free, it is given up before others are made."""
        if bucket(nbytes) != nbytes:
            self._exact.add(nbytes)
        return self.take(nbytes)

    def give(self, number: int, handle: Handle, size: int) -> None:
        """Take a block back; called by the buffer that owned it."""
        self.used -= size
        if self.branches.active:
            self.branches.late.append((size, number, handle))
            return
        heappush(self._free[size], (number, handle))

    def branch(self) -> Pool:
        """A pool of the same device, for `enter`, counted and drained with this one."""
        branch = Pool(self._backend, self._name, self)
        self.branches.all.append(branch)
        return branch

    def enter(self, branch: Pool) -> Pool | None:
        """Have the calling thread take its memory from `branch`. Returns what it took from before, for `leave`."""
        branches = self.branches
        with branches.lock:
            branches.active += 1
        previous, branches.thread.pool = branches.thread.pool, branch
        return previous

    def leave(self, previous: Pool | None) -> None:
        """End what `enter` began."""
        branches = self.branches
        branches.thread.pool = previous
        with branches.lock:
            branches.active -= 1
            if not branches.active:
                late, branches.late = branches.late, []
                for size, number, handle in late:
                    heappush(self._free[size], (number, handle))

    def _allocate(self, size: int) -> tuple[int, Handle]:
        self._free.setdefault(size, [])
        if self._exact:
            self._give_up(tuple(self._exact))
        try:
            handle = self._backend.allocate(size)
        except OutOfMemoryError:
            gc.collect()
            (self._parent or self).drain()
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
        """Return every free block to the device, those of its streams included."""
        self._backend.synchronize()
        for pool in (self, *self.branches.all):
            pool._give_up(pool._free)

    def _give_up(self, sizes: Iterable[int]) -> None:
        for size in sizes:
            blocks = self._free.get(size, [])
            while blocks:
                number, handle = blocks.pop()
                del self._owned[number]
                self._backend.deallocate(handle)
                self.reserved -= size

    def stats(self) -> MemoryStats:
        pools = (self, *self.branches.all)
        largest = max((size for pool in pools for size, blocks in pool._free.items() if blocks), default=0)
        return MemoryStats(
            sum(p.used for p in pools),
            sum(p.reserved for p in pools),
            sum(p.peak for p in pools),
            largest,
            sum(p.allocations for p in pools),
            sum(p.reuses for p in pools),
        )

    def reset_peak(self) -> None:
        """Start measuring the peak anew, from what is used now, by streams too."""
        for pool in (self, *self.branches.all):
            pool.peak = pool.used
