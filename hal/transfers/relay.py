"""The relay through the host, by which a value crosses between any two devices.

The value is read in chunks, each of which is written as soon as it has arrived, so that both links are in use. A read takes its
place in the source's work and blocks nobody, where the source supports that. The target's host thread waits for the bytes.
"""

from __future__ import annotations

import contextlib
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING

from polyhal.hal.layout import Ref
from polyhal.hal.transfers.lane_link import LaneKey, LaneStoppedError
from polyhal.hal.transfers.staged_chunk import Endpoint, StagedChunk
from polyhal.hal.transfers.staging import staging_for

if TYPE_CHECKING:
    from polyhal.hal.device import Device

CHUNK = 8 << 20
"""Bytes."""


class HostRelay:
    """Carries values of `nbytes` bytes from one device to another, one after the other.

    For each value one thread calls `send` and one, which may be another, calls `receive`, in any order.
    """

    def __init__(self, source: Device, target: Device, nbytes: int) -> None:
        self.source = source
        self.target = target
        self.nbytes = nbytes
        self._staging = staging_for(target, source)
        self._chunks: SimpleQueue[StagedChunk | None] = SimpleQueue()
        """What was sent and not received; None where `stop` was called."""
        self._waited = 0
        """Nanoseconds that `receive` has waited, in all calls."""

    def send(self, ref: Ref) -> None:
        """Start to read a contiguous value, after all work that the thread has enqueued on the source."""
        first = ref.offset * ref.dtype.itemsize
        for start in range(0, self.nbytes, CHUNK):
            chunk = StagedChunk(self._staging, min(CHUNK, self.nbytes - start))
            chunk.read(Endpoint(self.source, ref.handle, first + start))
            self._chunks.put(chunk)

    def receive(self, ref: Ref) -> None:
        """Wait for the bytes of the next value, and write them to contiguous memory of the target.

        Later work that the thread enqueues on the target sees them. Raises LaneStoppedError.
        """
        first = ref.offset * ref.dtype.itemsize
        received = 0
        while received < self.nbytes:
            chunk = self._next()
            chunk.write([Endpoint(self.target, ref.handle, first + received)])
            received += chunk.nbytes

    def waited(self, lane: LaneKey) -> int:
        """See `LaneLink`."""
        return self._waited if lane is self.target else 0

    def is_behind(self, lane: LaneKey) -> bool:
        """No device waits for another one here."""
        return False

    def stop(self) -> None:
        """Let `receive` raise LaneStoppedError, because `send` will not be called."""
        self._chunks.put(None)

    def clear(self) -> None:
        """Forget what was sent and not received."""
        while not self._chunks.empty():
            chunk = self._chunks.get()
            if chunk is not None:
                with contextlib.suppress(Exception):  # the error of the run is another one
                    chunk.wait()
                chunk.give_back()

    def _next(self) -> StagedChunk:
        """The next chunk, when its bytes are there. The target works on what it has meanwhile."""
        begin = time.perf_counter_ns()
        if self._chunks.empty():
            self.target.flush()
        chunk = self._chunks.get()
        if chunk is None:
            raise LaneStoppedError
        if not chunk.has_arrived():
            self.target.flush()
        chunk.wait()
        self._waited += time.perf_counter_ns() - begin
        return chunk
