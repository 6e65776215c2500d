"""Chunks of values in staging memory of the host, on their way from one device to others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.protocol import Event, Handle
from polyhal.hal.transfers.staging import Staging

if TYPE_CHECKING:
    from polyhal.hal.device import Device

SMALL = 1 << 16
"""Bytes below which a backend's own staging costs less than an event."""


class Endpoint(NamedTuple):
    """Where a chunk comes from or goes to: memory of a device, from a byte on."""

    device: Device
    handle: Handle
    offset: int


class StagedChunk:
    """Bytes that are read from one device, once, and then written to others, once."""

    __slots__ = ("_arrival", "_block", "_bytes", "_lock", "_staging", "_unwritten", "nbytes")

    def __init__(self, staging: Staging, nbytes: int) -> None:
        self.nbytes = nbytes
        self._staging = staging
        self._block = staging.take(nbytes)
        self._bytes = self._block[:nbytes]
        self._arrival: Event | None = None
        """Complete when the bytes are there; None if they are."""
        self._unwritten = 0
        """Targets that the bytes are still needed for."""
        self._lock = threading.Lock()

    def read(self, source: Endpoint) -> None:
        """Start to fill the chunk, after all work that the thread has enqueued on the device. Waits where the device must."""
        if source.device.reading_backend is None:
            source.device.backend.copy_from_device(source.handle, source.offset, self._bytes)
        else:
            read = source.device.reading_backend.copy_from_device_async
            self._arrival = read(source.handle, source.offset, self._bytes)

    def has_arrived(self) -> bool:
        """Whether all bytes are there."""
        return self._arrival is None or self._arrival.is_complete()

    def wait(self) -> None:
        """Wait until all bytes are there. Raises the typed error of work that failed."""
        if self._arrival is not None:
            self._arrival.wait()

    def write(self, targets: Sequence[Endpoint]) -> None:
        """Wait until all bytes are there and start to write them to all targets, after which the chunk gives itself back."""
        self.wait()
        self._unwritten = len(targets)
        for device, handle, offset in targets:
            if device.uploads is not None and self.nbytes >= SMALL:
                device.uploads.start(self._bytes, handle, offset, self._written)
            else:
                device.backend.copy_to_device(self._bytes, handle, offset)
                self._written()

    def give_back(self) -> None:
        """Leave the staging memory to other chunks. Nothing may be reading or writing it."""
        self._staging.give(self._block, self._block.nbytes)

    def _written(self) -> None:
        """Note that a target has the bytes. Called by the threads that go on with each target."""
        with self._lock:
            self._unwritten -= 1
            last = not self._unwritten
        if last:
            self.give_back()
