"""The memory of a device: an address space, and an allocator for ranges of it.

First fit: an allocation takes the first free range that is large enough. A range that is released merges with its free
neighbours ("coalescing"). Free ranges between long-lived allocations are fragmentation: enough free bytes in total, but
not contiguous. A NumPy array holds the bytes of an allocation; its pages the operating system commits when they are
first touched.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from dataclasses import dataclass

import numpy as np

from polyhal.hal.core.memory.host_memory import HostMemory, HostMemoryGuard
from polyhal.hal.errors import BackendError, OutOfMemoryError

BASE = 0x7000_0000_0000
"""The first address of device memory. Host addresses are far below, so that a mix-up is a page fault."""
ALIGNMENT = 256
"""Every allocation starts at a multiple of this."""


class PageFaultError(BackendError):
    """A command used an address that belongs to no allocation."""

    def __init__(self, address: int, problem: str) -> None:
        super().__init__(f"page fault at address {address:#x}: {problem}")
        self.address = address


@dataclass(slots=True, eq=False)
class DeviceAllocation:
    """A range of device memory in use."""

    address: int
    nbytes: int
    reserved: int
    """Bytes taken from the address space: `nbytes`, aligned."""
    number: int
    """Sequence number of the allocation, from 1."""
    storage: np.ndarray | None
    """The bytes; None on a device that computes nothing."""


class AddressSpace:
    """Device memory. Methods may be called from any thread."""

    def __init__(self, size: int, max_allocation: int, *, backed: bool = True) -> None:
        """Start with one free range. `backed`: whether allocations have storage (devices with `compute=off` have none)."""
        self.size = size // ALIGNMENT * ALIGNMENT
        self.max_allocation = max_allocation
        self.count = 0
        """Allocations so far, failed ones included."""
        self._backed = backed
        self._host = HostMemoryGuard(HostMemory())
        self._live: dict[int, DeviceAllocation] = {}
        self._starts: list[int] = []
        """Sorted addresses of live allocations."""
        self._free: list[tuple[int, int]] = [(BASE, self.size)]
        """Sorted (address, size) of free ranges. Adjacent ranges are merged."""
        self._released: dict[int, DeviceAllocation] = {}
        """Last released allocation by address, for error messages."""
        self._lock = threading.Lock()

    # --- allocating -------------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Count an allocation, and return its number."""
        with self._lock:
            self.count += 1
            return self.count

    def allocate(self, nbytes: int, number: int = 0) -> DeviceAllocation:
        """Take the first free range that is large enough. Raises OutOfMemoryError, with the state of the memory."""
        reserved = -(-nbytes // ALIGNMENT) * ALIGNMENT
        with self._lock:
            place = next((i for i, (_, size) in enumerate(self._free) if size >= reserved), None)
            if nbytes > self.max_allocation or place is None:
                raise OutOfMemoryError(self._shortage(nbytes))
            storage = self._commit(nbytes)
            address, size = self._free[place]
            self._free[place : place + 1] = [(address + reserved, size - reserved)] if size > reserved else []
            allocation = DeviceAllocation(address, nbytes, reserved, number, storage)
            self._live[address] = allocation
            insort(self._starts, address)
            return allocation

    def _commit(self, nbytes: int) -> np.ndarray | None:
        if not self._backed:
            return None
        self._host.admit(nbytes)
        try:
            return np.empty(nbytes, np.uint8)
        except MemoryError as error:
            raise OutOfMemoryError(f"the host cannot allocate {nbytes} bytes for the simulated memory") from error

    def _shortage(self, nbytes: int) -> str:
        if nbytes > self.max_allocation:
            return f"{nbytes} bytes requested; the largest possible allocation is {self.max_allocation} bytes"
        left, largest = sum(size for _, size in self._free), max((size for _, size in self._free), default=0)
        return f"{nbytes} bytes requested; {left} are free, at most {largest} contiguous"

    def release(self, address: int) -> DeviceAllocation:
        """Free an allocation, and merge it with free neighbours. Raises BackendError if none starts at `address`."""
        with self._lock:
            allocation = self._live.pop(address, None)
            if allocation is None:
                raise BackendError(self._no_allocation(address))
            del self._starts[bisect_right(self._starts, address) - 1]
            allocation.storage = None
            self._released[address] = allocation
            self._insert_free(address, allocation.reserved)
            return allocation

    def _no_allocation(self, address: int) -> str:
        known = self._released.get(address)
        return f"the memory at {address:#x} was released before" if known else f"no allocation starts at {address:#x}"

    def _insert_free(self, address: int, size: int) -> None:
        """Add a free range, merged with adjacent free ranges."""
        place = bisect_right(self._free, (address, 0))
        before = self._free[place - 1] if place else None
        after = self._free[place] if place < len(self._free) else None
        first = last = place
        if before is not None and before[0] + before[1] == address:
            address, size, first = before[0], before[1] + size, place - 1
        if after is not None and address + size == after[0]:
            size, last = size + after[1], place + 1
        self._free[first:last] = [(address, size)]

    # --- access -----------------------------------------------------------------------------------------------------

    def find(self, address: int, nbytes: int) -> tuple[DeviceAllocation, int]:
        """Return the allocation with the bytes [address, address + nbytes), and the offset there. Raises PageFaultError."""
        allocation = self._live.get(address)
        if allocation is None:
            with self._lock:
                place = bisect_right(self._starts, address) - 1
                allocation = self._live[self._starts[place]] if place >= 0 else None
        offset = address - allocation.address if allocation is not None else 0
        if allocation is None or offset + nbytes > allocation.nbytes:
            raise PageFaultError(address, self._explain(address, nbytes, allocation))
        return allocation, offset

    def _explain(self, address: int, nbytes: int, allocation: DeviceAllocation | None) -> str:
        if allocation is not None and address < allocation.address + allocation.reserved:
            end = allocation.address + allocation.nbytes
            return f"{nbytes} bytes from this address exceed the end {end:#x} of allocation {allocation.number}"
        for old in self._released.values():
            if old.address <= address < old.address + old.nbytes:
                return f"allocation {old.number} of {old.nbytes} bytes was released before"
        return "the address was never allocated" if BASE <= address < BASE + self.size else "not in device memory"

    # --- inspecting -------------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Total free bytes."""
        with self._lock:
            return sum(size for _, size in self._free)

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free range, the maximum of one allocation."""
        with self._lock:
            return max((size for _, size in self._free), default=0)

    @property
    def fragmentation(self) -> float:
        """Fraction of the free bytes outside of the largest free range."""
        available = self.available
        return 1 - self.largest_free / available if available else 0.0

    def live(self) -> list[DeviceAllocation]:
        """Return the allocations in use, by address."""
        with self._lock:
            return [self._live[a] for a in self._starts]

    def free_ranges(self) -> list[tuple[int, int]]:
        """Return (address, size) of each free range, by address."""
        with self._lock:
            return list(self._free)

    def picture(self, width: int = 64) -> str:
        """Draw the memory as one line of `width` cells: `#` full, `+` partly used, `.` free."""
        used = [0.0] * width
        cell = self.size / width
        for allocation in self.live():
            start = allocation.address - BASE
            end = start + allocation.reserved
            for i in range(int(start / cell), min(width, int((end - 1) / cell) + 1)):
                used[i] += min(end, (i + 1) * cell) - max(start, i * cell)
        row = "".join("." if not u else "#" if u > 0.99 * cell else "+" for u in used)
        return f"[{row}] {self.available} of {self.size} bytes free, {self.largest_free} contiguous"
