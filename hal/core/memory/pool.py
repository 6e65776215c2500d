"""The memory pool of a device: a caching allocator with a free list per size bucket.

The free block with the lowest allocation number is reused first. Repeated programs, such as training steps, then
receive the same blocks at the same points, in any order of release, and backends that bind memory to kernels in advance
reuse their bindings.

Freed blocks are reused at once, even if work on them is still enqueued: a backend runs work in the order of enqueueing,
so the new owner's kernels run after the old owner's.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.host_memory import HostMemory, HostMemoryGuard
from polyhal.hal.core.settings.log import logger
from polyhal.hal.errors import OutOfMemoryError, PolyhalError, message
from polyhal.hal.protocol import ComputeBackend, Handle

_LOG = logger("memory")

_SMALLEST = 256
_STEPS = 8
"""Buckets per doubling: at most 1/8 of a block is wasted."""
_LARGEST_STEP = 2 << 20
"""Bytes between the buckets of large blocks, as in PyTorch: wasting 1/8 of very large blocks would be too much, and a tensor
just below the largest allocation must not become a block above it."""


class MemoryStats(NamedTuple):
    """Bytes and counts of one pool. `used` belongs to tensors, `reserved` includes free blocks kept for reuse.

    `peak` is the maximum of `used`, `peak_reserved` the maximum of `reserved`.
    """

    used: int
    reserved: int
    peak: int
    largest_free: int
    allocations: int
    reuses: int
    peak_reserved: int


def bucket(nbytes: int) -> int:
    """Return the block size for a request of `nbytes`; 0 for 0."""
    if nbytes <= _SMALLEST:
        return _SMALLEST if nbytes else 0
    step = min(max((1 << ((nbytes - 1).bit_length() - 1)) // _STEPS, _SMALLEST), _LARGEST_STEP)
    return -(-nbytes // step) * step


class _CurrentPool(threading.local):
    """Stream pool that a thread allocates from; None: the device's pool."""

    pool: Pool | None = None


class StreamPools:
    """The pools of a device's streams.

    Each stream has its own pool, because its work is not ordered relative to other streams. Blocks freed by any thread
    while a stream is in use become reusable only after the stream has ended, because its work may still use them.
    """

    def __init__(self) -> None:
        self.all: list[Pool] = []
        self.current = _CurrentPool()
        self.active = 0
        """Number of streams in use."""
        self.freed: list[tuple[int, int, Handle]] = []
        """(size, number, handle) of blocks freed while streams are in use."""
        self.lock = threading.Lock()


@functools.cache
def _host_pools() -> weakref.WeakSet[Pool]:
    """Return the pools of all devices that compute in host memory. When it runs out, all of them release their free blocks."""
    return weakref.WeakSet()


class Pool:
    """Allocates blocks of device memory by bucket size."""

    _push = staticmethod(heappush)
    """Bound to the class: a module's globals are None when the last tensors die at the interpreter's exit."""

    def __init__(self, backend: ComputeBackend, device_name: str, parent: Pool | None = None) -> None:
        """Create a pool; `parent` is the device's pool if this is a stream's."""
        self._backend = backend
        self._name = device_name
        self._parent = parent
        shared = backend.info.type is DeviceType.CPU and backend.capabilities.unified_memory
        self._host = HostMemoryGuard(HostMemory()) if shared else None
        """Guard for devices that compute in host memory, shared with other devices."""
        if shared and parent is None:
            _host_pools().add(self)
        # Heaps of (number, handle). Heap operations on tuples of unique integers run no Python code and are thus
        # atomic, so blocks may be released by any thread or by the garbage collector.
        self._free: dict[int, list[tuple[int, Handle]]] = {}
        # If tensors die in a reference cycle, a handle referenced only by them would be finalized with them, before it
        # returns to the pool. So the pool also references every handle.
        self._owned: dict[int, tuple[Handle, int]] = {}
        """Handle and size of every block by number."""
        self._numbers = itertools.count(1)
        """Counter of block numbers; atomic, so that concurrent allocations receive distinct numbers."""
        self.limit: int | None = None
        """Maximum bytes that the pool may reserve, including streams; None for no limit but the device's."""
        self._exact: set[int] = set()
        """Sizes that are not buckets, whose blocks few requests could reuse."""
        self.streams = StreamPools()
        self.check: Callable[[int], None] | None = None
        """Hook called with the size of each new block before its allocation; it raises to reject it."""
        self.reclaim: Callable[[], None] | None = None
        """Function that waits for the device and other libraries; None if no others use blocks of the pool."""
        self.used = 0
        self.reserved = 0
        self.peak = 0
        self.peak_reserved = 0
        self.allocations = 0
        self.reuses = 0

    def take(self, size: int) -> Buffer:
        """Allocate a block of `size` bytes, a value of `bucket`. Raises OutOfMemoryError."""
        if not size:
            return Buffer(None, 0, self, 0)
        if self.streams.active and (pool := self.streams.current.pool) is not None:
            return pool.take(size)
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
        """Allocate exactly `nbytes` > 0, for long-lived owners.

        Once free, such a block is returned to the device before new blocks are allocated.
        """
        if bucket(nbytes) != nbytes:
            self._exact.add(nbytes)
        return self.take(nbytes)

    def give(self, number: int, handle: Handle, size: int) -> None:
        """Put a block on the free list; called by the buffer that owned it."""
        self.used -= size
        if self.streams.active:
            self.streams.freed.append((size, number, handle))
            return
        self._push(self._free[size], (number, handle))

    def stream_pool(self) -> Pool:
        """Create a pool for a stream of the same device, counted and drained with this pool."""
        pool = Pool(self._backend, self._name, self)
        self.streams.all.append(pool)
        return pool

    def enter(self, pool: Pool) -> Pool | None:
        """Make the calling thread allocate from a stream's pool. Returns the previous pool, for `leave`."""
        streams = self.streams
        with streams.lock:
            streams.active += 1
        previous, streams.current.pool = streams.current.pool, pool
        return previous

    def leave(self, previous: Pool | None) -> None:
        """Undo `enter`. When no stream is in use any more, blocks freed in between become available."""
        streams = self.streams
        streams.current.pool = previous
        with streams.lock:
            streams.active -= 1
            if not streams.active:
                freed, streams.freed = streams.freed, []
                for size, number, handle in freed:
                    heappush(self._free[size], (number, handle))

    def _allocate(self, size: int) -> tuple[int, Handle]:
        if self.check is not None:
            self.check(size)
        self._free.setdefault(size, [])
        if self._exact:
            self._deallocate(tuple(self._exact))
        try:
            handle = self._allocate_block(size)
        except OutOfMemoryError:
            _LOG.info("%s: no memory for %d bytes; releasing unused blocks and trying again", self._name, size)
            gc.collect()
            (self._parent or self).drain()
            if self._host is not None:
                for pool in list(_host_pools()):
                    with contextlib.suppress(PolyhalError):  # another device may be lost
                        pool.drain()
            try:
                handle = self._allocate_block(size)
            except OutOfMemoryError as error:
                raise self._out_of_memory(size) from error
        number = next(self._numbers)
        self._owned[number] = handle, size
        self.allocations += 1
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        _LOG.debug("%s: block of %d bytes; %d bytes reserved, %d in use", self._name, size, self.reserved, self.used)
        return number, handle

    def _allocate_block(self, size: int) -> Handle:
        whole = self._parent or self
        if whole.limit is not None and whole.total_reserved + size > whole.limit:
            raise OutOfMemoryError("the limit of the pool is reached")  # replaced by `_out_of_memory`
        if self._host is not None:
            self._host.admit(size)
        return self._backend.allocate(size)

    def _out_of_memory(self, size: int) -> OutOfMemoryError:
        limit = self._backend.capabilities.limits.max_allocation
        block = f", the largest single block is {limit / 2**20:.2f} MiB" if limit else ""
        own = (self._parent or self).limit
        if own is not None:
            block += f"; device.set_memory_limit allows {own / 2**20:.2f} MiB"
        return OutOfMemoryError(
            message(
                None,
                f"no memory for {size / 2**20:.2f} MiB: {self.used / 2**20:.2f} MiB are in use and "
                f"{self.available / 2**20:.2f} MiB are left{block}",
                fix="use a smaller batch, or drop tensors that are no longer needed",
                device=self._name,
            )
        )

    def abandon(self, stand_in: ComputeBackend) -> None:
        """Replace the backend, which must not be called any more, by `stand_in`."""
        for pool in (self, *self.streams.all):
            pool._backend = stand_in
            pool.reclaim = None

    def drain(self) -> None:
        """Return every free block to the device, including the blocks of its streams."""
        (self.reclaim or self._backend.synchronize)()
        before = self.total_reserved
        for pool in (self, *self.streams.all):
            pool._deallocate(pool._free)
        _LOG.debug("%s: released %d unused bytes", self._name, before - self.total_reserved)

    def _deallocate(self, sizes: Iterable[int]) -> None:
        """Return the free blocks of the given sizes to the device."""
        for size in sizes:
            blocks = self._free.get(size, [])
            while blocks:
                number, handle = blocks.pop()
                del self._owned[number]
                self._backend.deallocate(handle)
                self.reserved -= size
                if self._host is not None:
                    self._host.forget(size)

    @property
    def total_reserved(self) -> int:
        """Return the bytes reserved from the device, including streams."""
        return sum(p.reserved for p in (self, *self.streams.all))

    @property
    def available(self) -> int:
        """Return the bytes that can still be reserved, within the device's memory, the system's spare memory and the limit."""
        whole = self._parent or self
        left = self._backend.memory_available()
        if whole.limit is not None:
            left = max(min(left, whole.limit - whole.total_reserved), 0)
        spare = self._host.spare() if self._host is not None else None
        return left if spare is None else min(left, spare)

    def live_blocks(self) -> list[tuple[Handle, int]]:
        """Return handle and size of each block in use, including streams."""
        freed = {number for _, number, _ in self.streams.freed}
        live = []
        for pool in (self, *self.streams.all):
            free = {number for blocks in list(pool._free.values()) for number, _ in list(blocks)}
            live += [block for number, block in list(pool._owned.items()) if number not in free | freed]
        return live

    def stats(self) -> MemoryStats:
        """Return sums over this pool and the pools of streams."""
        pools = (self, *self.streams.all)
        largest = max((size for pool in pools for size, blocks in pool._free.items() if blocks), default=0)
        return MemoryStats(
            sum(p.used for p in pools),
            sum(p.reserved for p in pools),
            sum(p.peak for p in pools),
            largest,
            sum(p.allocations for p in pools),
            sum(p.reuses for p in pools),
            sum(p.peak_reserved for p in pools),
        )

    def reset_peak(self) -> None:
        """Reset the peaks to the current use and reservation, including streams."""
        for pool in (self, *self.streams.all):
            pool.peak, pool.peak_reserved = pool.used, pool.reserved
