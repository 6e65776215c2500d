"""Relay: data movement of collectives through host memory, in chunks.

Downloads of chunks to the host overlap with uploads of earlier chunks. A chunk with several targets is downloaded once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.core.transfers.staged_chunk import Endpoint, StagedChunk
from polyhal.hal.core.transfers.staging import staging_for
from polyhal.hal.layout import ALIGNMENT, Ref, Spec

if TYPE_CHECKING:
    from polyhal.hal.device import Device

CHUNK = 4 * 2**20
"""Bytes of a chunk."""
_IN_FLIGHT = 4
"""Maximum number of downloads in flight."""


class Delivery(NamedTuple):
    """A chunk to copy from one device to others."""

    device: Device
    source: Ref
    targets: Sequence[tuple[Device, Ref]]
    then: Callable[[], Iterable[Delivery]] | None = None
    """Callback after all copies are enqueued. Returns the deliveries that depend on this one."""


def chunks(size: int, itemsize: int, chunk: int) -> Iterable[tuple[int, int]]:
    """Divide a vector into chunks of at most `chunk` bytes. Yields starts and lengths in elements."""
    step = max(1, chunk // itemsize)
    for start in range(0, size, step):
        yield start, min(step, size - start)


def part(ref: Ref, start: int, size: int) -> Ref:
    """Return `size` elements of a vector, starting with element `start`."""
    offset = ref.offset + start
    return Ref(ref.handle, Spec(ref.dtype, (size,), (1,), offset % ALIGNMENT == 0), offset)


class Relay:
    """Executor of deliveries through host staging memory, with a few chunks in flight."""

    arrivals = 1
    """Number of receive buffers per pair of participants: a chunk is uploaded after the reduction of the last one."""

    def __init__(self) -> None:
        self._chunk = CHUNK

    def chunk(self, nbytes: int) -> int:
        """Return the bytes of one copy for a vector of `nbytes`."""
        return self._chunk

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Run deliveries and the deliveries that their `then` returns. The calls of `then` keep the order of deliveries."""
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
