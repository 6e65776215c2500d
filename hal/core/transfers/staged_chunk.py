"""Chunks of values in host staging memory, in flight from one device to others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.core.transfers.staging import Staging
from polyhal.hal.protocol import Event, Handle

if TYPE_CHECKING:
    from polyhal.hal.device import Device

SMALL = 1 << 16
"""Minimum bytes of an asynchronous upload. Below, the backend's own staging costs less than an event."""


class Endpoint(NamedTuple):
    """Source or target of a chunk: device memory with a byte offset."""

    device: Device
    handle: Handle
    offset: int


class StagedChunk:
    """Bytes that are read once from one device and then written once to each target."""

    __slots__ = ("_arrival", "_block", "_bytes", "_lock", "_staging", "_unwritten", "nbytes")

    def __init__(self, staging: Staging, nbytes: int) -> None:
        self.nbytes = nbytes
        self._staging = staging
        self._block = staging.take(nbytes)
        self._bytes = self._block[:nbytes]
        self._arrival: Event | None = None
        """Event of a read in flight; None if the read was synchronous."""
        self._unwritten = 0
        """Number of targets that have not consumed the chunk."""
        self._lock = threading.Lock()

    def read(self, source: Endpoint) -> None:
        """Enqueue a read into the chunk after the thread's work on the device. Blocks on devices without asynchronous reads."""
        if source.device.reading_backend is None:
            source.device.backend.copy_from_device(source.handle, source.offset, self._bytes)
        else:
            read = source.device.reading_backend.copy_from_device_async
            self._arrival = read(source.handle, source.offset, self._bytes)

    def has_arrived(self) -> bool:
        """Return whether the read is complete."""
        return self._arrival is None or self._arrival.is_complete()

    def wait(self) -> None:
        """Wait until the read is complete. Raises the typed error of work that failed."""
        if self._arrival is not None:
            self._arrival.wait()

    def write(self, targets: Sequence[Endpoint]) -> None:
        """Wait for the read and start writes to all targets. The last one to complete returns the chunk to its pool."""
        self.wait()
        self._unwritten = len(targets)
        for device, handle, offset in targets:
            if device.uploads is not None and self.nbytes >= SMALL:
                device.uploads.start(self._bytes, handle, offset, self._written)
            else:
                device.backend.copy_to_device(self._bytes, handle, offset)
                self._written()

    def give_back(self) -> None:
        """Return the staging memory to its pool. No read or write of it may be in flight."""
        self._staging.give(self._block, self._block.nbytes)

    def _written(self) -> None:
        """Count a completed write. Called by the thread that observes it."""
        with self._lock:
            self._unwritten -= 1
            last = not self._unwritten
        if last:
            self.give_back()
