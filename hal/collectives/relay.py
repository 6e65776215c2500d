"""The relay: copies between any two devices through the host's memory, chunk by chunk.

While one chunk is on its way from a device to the host, others are on their way from the host to their targets. A chunk that
several devices want is read once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polyhal.hal.layout import ALIGNMENT, Ref, Spec
from polyhal.hal.memory.host_bytes import byte_view
from polyhal.hal.protocol import Event, SupportsAsyncRead, SupportsPinnedMemory

if TYPE_CHECKING:
    from polyhal.hal.device import Device

CHUNK = 4 * 2**20
"""Bytes of a copy that are on their way at a time."""
_IN_FLIGHT = 4
"""Chunks that are being read at a time."""
_SPARE = 2
"""Chunks of host memory per device that are left alone, because what they held is still being written."""


class Delivery(NamedTuple):
    """A chunk to copy from one device to others."""

    device: Device
    source: Ref
    targets: Sequence[tuple[Device, Ref]]
    then: Callable[[], Iterable[Delivery]] | None = None
    """Called when all copies are enqueued. Returns the deliveries that this one makes possible."""


def chunks(size: int, itemsize: int, chunk: int) -> Iterable[tuple[int, int]]:
    """Divide a vector into chunks of at most `chunk` bytes. Yields starts and lengths in elements."""
    step = max(1, chunk // itemsize)
    for start in range(0, size, step):
        yield start, min(step, size - start)


def part(ref: Ref, start: int, size: int) -> Ref:
    """`size` elements of a vector from element `start` on."""
    offset = ref.offset + start
    return Ref(ref.handle, Spec(ref.dtype, (size,), (1,), offset % ALIGNMENT == 0), offset)


class Relay:
    """Host memory for the devices of a group: a few chunks for each, page-locked where the driver offers that."""

    arrivals = 1
    """Places where chunks from one member to another arrive in turn: each is written after the last one was reduced."""

    def __init__(self) -> None:
        self._chunk = CHUNK
        self._free: dict[Device, list[_Slot]] = {}

    def chunk(self, nbytes: int) -> int:
        """Bytes of one copy, for a vector of `nbytes`."""
        return self._chunk

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Carry out deliveries, and those that follow from them. What each does afterwards is done in their order."""
        reading: deque[tuple[Delivery, _Slot]] = deque()
        for delivery in deliveries:
            self._begin(delivery, reading)
            while len(reading) > _IN_FLIGHT:
                self._finish(reading)
        while reading:
            self._finish(reading)

    def _begin(self, delivery: Delivery, reading: deque[tuple[Delivery, _Slot]]) -> None:
        free = self._free.setdefault(delivery.device, [])
        slot = free.pop(0) if len(free) > _SPARE else _Slot(delivery.device, self._chunk)
        slot.read(delivery.source)
        reading.append((delivery, slot))

    def _finish(self, reading: deque[tuple[Delivery, _Slot]]) -> None:
        delivery, slot = reading.popleft()
        slot.write(delivery.targets)
        self._free[delivery.device].append(slot)
        if delivery.then is not None:
            for following in delivery.then():
                self._begin(following, reading)


class _Slot:
    """A chunk of host memory that one device reads into and others write from."""

    def __init__(self, device: Device, nbytes: int) -> None:
        backend = device.backend
        self._backend = backend
        self._reader = backend if isinstance(backend, SupportsAsyncRead) else None
        pinned = isinstance(backend, SupportsPinnedMemory) and not backend.capabilities.unified_memory
        self._memory = (
            np.frombuffer(backend.allocate_pinned(nbytes), np.uint8) if pinned else np.empty(nbytes, np.uint8)  # type: ignore[attr-defined]
        )
        self._bytes = byte_view(self._memory)
        self._read: Event | None = None
        self._writes: list[Event] = []

    def read(self, source: Ref) -> None:
        """Start to fill the slot, once what it held before was written."""
        for event in self._writes:
            event.wait()
        self._writes = []
        itemsize = source.dtype.itemsize
        self._bytes = byte_view(self._memory[: source.size * itemsize])
        offset = source.offset * itemsize
        if self._reader is None:
            self._backend.copy_from_device(source.handle, offset, self._bytes)
        else:
            self._read = self._reader.copy_from_device_async(source.handle, offset, self._bytes)

    def write(self, targets: Sequence[tuple[Device, Ref]]) -> None:
        """Start to write what was read, once it is there."""
        if self._read is not None:
            self._read.wait()
            self._read = None
        for device, target in targets:
            backend, offset = device.backend, target.offset * target.dtype.itemsize
            if isinstance(backend, SupportsPinnedMemory):
                self._writes.append(backend.copy_to_device_async(self._bytes, target.handle, offset))
            else:
                backend.copy_to_device(self._bytes, target.handle, offset)
