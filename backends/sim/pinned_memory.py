"""Host memory that the device may read and write: pinned buffers by address.

Hardware accesses host memory through an IOMMU, which rejects addresses that the driver has not mapped. So does this
table.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import Any

from polyhal.backends.sim.address_space import PageFaultError

BASE = 0x1000_0000
_PAGE = 4096


class PinnedMemory:
    """Pinned buffers by address. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._buffers: dict[int, memoryview] = {}
        self._starts: list[int] = []
        """Sorted addresses of buffers, including some released ones."""
        self._next = BASE
        self._lock = threading.Lock()

    def pin(self, buffer: Any) -> int:
        """Map a buffer for the device, and return its address. It is kept alive until `unpin`."""
        view = memoryview(buffer).cast("B")
        with self._lock:
            address = self._next
            self._next += -(-max(view.nbytes, 1) // _PAGE) * _PAGE
            self._buffers[address] = view
            if len(self._starts) > 64 + 2 * len(self._buffers):
                self._starts = sorted(self._buffers)
            else:
                self._starts.append(address)
        return address

    def unpin(self, address: int) -> None:
        """Unmap a buffer."""
        with self._lock:
            del self._buffers[address]

    def __contains__(self, address: int) -> bool:
        return address in self._buffers

    def __len__(self) -> int:
        """Return the number of pinned buffers."""
        return len(self._buffers)

    def at(self, address: int) -> memoryview:
        """Return the bytes of a buffer from an address to its end. Raises PageFaultError."""
        view = self._buffers.get(address)
        if view is not None:
            return view
        with self._lock:
            place = bisect_right(self._starts, address) - 1
            start = self._starts[place] if place >= 0 else 0
            view = self._buffers.get(start)
        if view is None or address - start >= view.nbytes:
            raise PageFaultError(address, "it is not in pinned host memory")
        return view[address - start :]
