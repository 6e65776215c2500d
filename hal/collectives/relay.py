"""The relay: copies between any two devices through the host's memory, chunk by chunk.

While one chunk is on its way from a device to the host, others are on their way from the host to their targets. A chunk that
several devices want is read once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.layout import ALIGNMENT, Ref, Spec
from polyhal.hal.transfers.staged_chunk import Endpoint, StagedChunk
from polyhal.hal.transfers.staging import staging_for

if TYPE_CHECKING:
    from polyhal.hal.device import Device

CHUNK = 4 * 2**20
"""Bytes of a copy that are on their way at a time."""
_IN_FLIGHT = 4
"""Chunks that are being read at a time."""


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
    """Copies through staging memory of the host, a few chunks at a time."""

    arrivals = 1
    """Places where chunks from one member to another arrive in turn: each is written after the last one was reduced."""

    def __init__(self) -> None:
        self._chunk = CHUNK

    def chunk(self, nbytes: int) -> int:
        """Bytes of one copy, for a vector of `nbytes`."""
        return self._chunk

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Carry out deliveries, and those that follow from them. What each does afterwards is done in their order."""
        reading: deque[tuple[Delivery, StagedChunk]] = deque()
        for delivery in deliveries:
            self._begin(delivery, reading)
            while len(reading) > _IN_FLIGHT:
                self._finish(reading)
        while reading:
            self._finish(reading)

    def _begin(self, delivery: Delivery, reading: deque[tuple[Delivery, StagedChunk]]) -> None:
        staging = staging_for(*(target for target, _ in delivery.targets), delivery.device)
        chunk = StagedChunk(staging, delivery.source.spec.nbytes)
        chunk.read(_endpoint(delivery.device, delivery.source))
        reading.append((delivery, chunk))

    def _finish(self, reading: deque[tuple[Delivery, StagedChunk]]) -> None:
        delivery, chunk = reading.popleft()
        chunk.write([_endpoint(device, target) for device, target in delivery.targets])
        if delivery.then is not None:
            for following in delivery.then():
                self._begin(following, reading)


def _endpoint(device: Device, ref: Ref) -> Endpoint:
    return Endpoint(device, ref.handle, ref.offset * ref.dtype.itemsize)
