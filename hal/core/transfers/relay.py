"""Host relay: transfers between any two devices through host memory.

A value is read in chunks, and each chunk is written as soon as it has arrived, so that both links are busy. Where the source
supports asynchronous reads, a read is enqueued with its other work and does not block. The worker thread of the target blocks
until the bytes have arrived.
"""

from __future__ import annotations

import contextlib
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING

from polyhal.hal.core.transfers.staged_chunk import Endpoint, StagedChunk
from polyhal.hal.core.transfers.staging import staging_for
from polyhal.hal.core.transfers.worker_link import WorkerKey, WorkerStoppedError
from polyhal.hal.layout import Ref

if TYPE_CHECKING:
    from polyhal.hal.device import Device

CHUNK = 8 << 20
"""Bytes."""


class HostRelay:
    """Channel for values of `nbytes` bytes from one device to another, one at a time.

    For each value one thread calls `send` and the same or another thread calls `receive`, in any order.
    """

    def __init__(self, source: Device, target: Device, nbytes: int) -> None:
        self.source = source
        self.target = target
        self.nbytes = nbytes
        self._staging = staging_for(target, source)
        self._chunks: SimpleQueue[StagedChunk | None] = SimpleQueue()
        """Chunks that were sent and not received; None is the sentinel of `stop`."""
        self._waited = 0
        """Nanoseconds that `receive` has waited, summed over all calls."""

    def send(self, ref: Ref) -> None:
        """Enqueue reads of a contiguous value after all work that the thread has enqueued on the source."""
        first = ref.offset * ref.dtype.itemsize
        for start in range(0, self.nbytes, CHUNK):
            chunk = StagedChunk(self._staging, min(CHUNK, self.nbytes - start))
            chunk.read(Endpoint(self.source, ref.handle, first + start))
            self._chunks.put(chunk)

    def receive(self, ref: Ref) -> None:
        """Wait for the bytes of the next value, and write them to contiguous memory of the target.

        Later work that the thread enqueues on the target reads the new bytes. Raises WorkerStoppedError.
        """
        first = ref.offset * ref.dtype.itemsize
        received = 0
        while received < self.nbytes:
            chunk = self._next()
            chunk.write([Endpoint(self.target, ref.handle, first + received)])
            received += chunk.nbytes

    def waited(self, worker: WorkerKey) -> int:
        """Return the nanoseconds that a worker has waited here; see `WorkerLink`."""
        return self._waited if worker is self.target else 0

    def is_behind(self, worker: WorkerKey) -> bool:
        """Return False: no device waits for another one here, only the worker thread of the target."""
        return False

    def stop(self) -> None:
        """Make `receive` raise WorkerStoppedError, because `send` will not be called."""
        self._chunks.put(None)

    def clear(self) -> None:
        """Drop chunks that were sent and not received."""
        while not self._chunks.empty():
            chunk = self._chunks.get()
            if chunk is not None:
                with contextlib.suppress(Exception):  # the run raises its own error
                    chunk.wait()
                chunk.give_back()

    def _next(self) -> StagedChunk:
        """Return the next chunk once its read is complete. Enqueued work of the target is submitted first."""
        begin = time.perf_counter_ns()
        if self._chunks.empty():
            self.target.flush()
        chunk = self._chunks.get()
        if chunk is None:
            raise WorkerStoppedError
        if not chunk.has_arrived():
            self.target.flush()
        chunk.wait()
        self._waited += time.perf_counter_ns() - begin
        return chunk
