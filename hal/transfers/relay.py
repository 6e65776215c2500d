"""The relay through the host, by which a value crosses between any two devices.

The value is read in chunks, each of which is written as soon as it has arrived, so that both links are in use. A read takes its
place in the source's work and blocks nobody, where the source supports that. The target's host thread waits for the bytes.
"""

from __future__ import annotations

import contextlib
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.layout import Ref
from polyhal.hal.protocol import Event, SupportsAsyncRead
from polyhal.hal.transfers.lane_link import LaneKey, LaneStoppedError
from polyhal.hal.transfers.staging import staging_between

if TYPE_CHECKING:
    from polyhal.hal.device import Device

CHUNK = 8 << 20
"""Bytes."""
_SMALL = 1 << 16
"""Bytes below which a backend's own staging costs less than an event."""


class _Chunk(NamedTuple):
    """A part of the value in staging memory."""

    start: int
    nbytes: int
    block: memoryview
    event: Event | None
    """Complete when the bytes are there; None if they are."""


class HostRelay:
    """Carries values of `nbytes` bytes from one device to another, one after the other.

    For each value one thread calls `send` and one, which may be another, calls `receive`, in any order.
    """

    def __init__(self, source: Device, target: Device, nbytes: int) -> None:
        self.source = source
        self.target = target
        self.nbytes = nbytes
        self._reader = source.backend if isinstance(source.backend, SupportsAsyncRead) else None
        self._staging = staging_between(source, target)
        self._chunks: SimpleQueue[_Chunk | None] = SimpleQueue()
        """What was sent and not received; None where `stop` was called."""
        self._waited = 0
        """Nanoseconds that `receive` has waited, in all calls."""

    def send(self, ref: Ref) -> None:
        """Start to read a contiguous value, after all work that the thread has enqueued on the source."""
        first = ref.offset * ref.dtype.itemsize
        for start in range(0, self.nbytes, CHUNK):
            nbytes = min(CHUNK, self.nbytes - start)
            block = self._staging.take(nbytes)
            if self._reader is None:
                self.source.backend.copy_from_device(ref.handle, first + start, block[:nbytes])
                event = None
            else:
                event = self._reader.copy_from_device_async(ref.handle, first + start, block[:nbytes])
            self._chunks.put(_Chunk(start, nbytes, block, event))

    def receive(self, ref: Ref) -> None:
        """Wait for the bytes of the next value, and write them to contiguous memory of the target.

        Later work that the thread enqueues on the target sees them. Raises LaneStoppedError.
        """
        first = ref.offset * ref.dtype.itemsize
        received = 0
        while received < self.nbytes:
            chunk = self._next()
            self._write(chunk, ref, first + chunk.start)
            received += chunk.nbytes

    def waited(self, lane: LaneKey) -> int:
        """See `LaneLink`."""
        return self._waited if lane is self.target else 0

    def stop(self) -> None:
        """Let `receive` raise LaneStoppedError, because `send` will not be called."""
        self._chunks.put(None)

    def clear(self) -> None:
        """Forget what was sent and not received."""
        while not self._chunks.empty():
            chunk = self._chunks.get()
            if chunk is not None:
                if chunk.event is not None:
                    with contextlib.suppress(Exception):  # the error of the run is another one
                        chunk.event.wait()
                self._give_back(chunk)

    def _next(self) -> _Chunk:
        """The next chunk, when its bytes are there. The target works on what it has meanwhile."""
        begin = time.perf_counter_ns()
        if self._chunks.empty():
            self.target.flush()
        chunk = self._chunks.get()
        if chunk is None:
            raise LaneStoppedError
        if chunk.event is not None:
            if not chunk.event.is_complete():
                self.target.flush()
            chunk.event.wait()
        self._waited += time.perf_counter_ns() - begin
        return chunk

    def _write(self, chunk: _Chunk, ref: Ref, offset: int) -> None:
        data = chunk.block[: chunk.nbytes]
        if self.target.uploads is not None and chunk.nbytes >= _SMALL:
            self.target.uploads.start(data, ref.handle, offset, lambda: self._give_back(chunk))
        else:
            self.target.backend.copy_to_device(data, ref.handle, offset)
            self._give_back(chunk)

    def _give_back(self, chunk: _Chunk) -> None:
        self._staging.give(chunk.block, chunk.block.nbytes)
