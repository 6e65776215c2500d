"""Delivery of a loader's batches: read on demand, or prefetched by a thread."""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from polyhal.data.division import divided_upload_slot
from polyhal.data.reading import BatchRequest
from polyhal.data.transfer import BatchSlot, UploadSlot

if TYPE_CHECKING:
    from polyhal.data.loader import DataLoader


class Direct:
    """Reads each batch on demand."""

    def __init__(self, loader: DataLoader, pending: Iterable[BatchRequest]) -> None:
        self._loader = loader
        self._pending = pending
        parallel = loader.parallel
        self._slot: BatchSlot = UploadSlot(loader.device) if parallel is None else divided_upload_slot(parallel)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader.host_batches(self._pending, False):
            self._slot.load(batch)
            yield self._slot.deliver()

    def close(self) -> None:
        """End the worker processes."""
        self._loader.end_reading()


class Prefetched:
    """Prefetches a bounded number of batches in a thread.

    Slots circulate through two queues: the thread loads a free slot and enqueues it; the consumer delivers its batch and frees
    the slot, at once or, if the batch uses the slot's memory, `retained` batches later.
    """

    def __init__(self, loader: DataLoader, pending: Iterable[BatchRequest], count: int) -> None:
        self._loader = loader
        self._pending = pending
        self._free: queue.SimpleQueue[BatchSlot | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[BatchSlot | BaseException | None] = queue.SimpleQueue()
        self._delivered: deque[BatchSlot] = deque()
        self._closed = False
        self._device = loader.device
        self._slots = loader.take_slots(count)
        for slot in self._slots:
            self._free.put(slot)
        self._thread = threading.Thread(target=self._work, name="polyhal-data", daemon=True)

    def _work(self) -> None:
        try:
            for batch in self._loader.host_batches(self._pending, self._slots[0].gathers):
                slot = self._free.get()
                if slot is None:
                    return
                slot.load(batch)
                self._ready.put(slot)
            self._ready.put(None)
        except BaseException as error:  # the consumer raises it
            self._ready.put(error)

    def __iter__(self) -> Iterator[Any]:
        retained = self._slots[0].retained
        self._thread.start()
        while True:
            self._release(max(retained - 1, 0))
            slot = self._ready.get()
            if slot is None:
                return
            if isinstance(slot, BaseException):
                raise slot
            batch = slot.deliver()
            self._delivered.append(slot)
            self._release(retained)
            yield batch

    def _release(self, keep: int) -> None:
        """Free all delivered slots but the last `keep`."""
        while len(self._delivered) > keep:
            slot = self._delivered.popleft()
            slot.release()
            self._free.put(slot)

    def close(self) -> None:
        """Stop the thread, and wait for it and for copies in flight. Called at the end, on errors and on early exit."""
        try:
            self._end()
        finally:
            self._end()  # completes an interrupted first call

    def _end(self) -> None:
        if self._closed:
            return
        while not self._free.empty():
            self._free.get_nowait()
        self._free.put(None)
        self._loader.stop_reading()
        if not sys.is_finalizing():  # the interpreter has stopped daemon threads, and joining would hang
            if self._thread.ident is not None:
                self._thread.join()
            for slot in self._slots:
                slot.wait()
            self._loader.give_slots(self._device, self._slots)
            self._loader.end_reading()
        self._closed = True
