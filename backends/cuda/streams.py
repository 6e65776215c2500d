"""Streams: in-order queues of a device, its own and further ones that threads select."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from polyhal.backends.common.cuda_context import PrimaryContext
from polyhal.backends.cuda.events import CudaEvent, NativeEvent, ReadCompleter, recorded
from polyhal.hal.protocol import Event

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: the stream does not wait for the legacy default stream, which other libraries may use."""


class CudaStream:
    """One in-order queue."""

    def __init__(self, context: PrimaryContext) -> None:
        """Create the stream. Raises CudaError."""
        self._context = context
        self._driver = context.driver
        with context:
            self._handle = self._driver.value("cuStreamCreate", "CUstream *", _NON_BLOCKING)
        self.waits: list[Event] = []
        """Events of other backends, for which the host waits before the next command, when it takes the `handle`."""
        self._lock = threading.RLock()  # the garbage collector may release memory while a thread waits
        self.completer = ReadCompleter()
        """Completes copies to the host."""

    @property
    def handle(self) -> Any:
        """The driver's stream, for the next command. Waits first for events of other backends."""
        if self.waits:
            with self._lock:
                try:
                    for event in self.waits:
                        event.wait()
                finally:
                    # Last, because another thread that finds the list empty may enqueue immediately.
                    self.waits = []
        return self._handle

    def mark(self) -> NativeEvent:
        """Return an event after all commands so far. The context must be current. Raises CudaError."""
        return recorded(self._context, self.handle)

    def wait_for(self, event: Event) -> None:
        """Make later commands wait for an event. Raises CudaError."""
        if isinstance(event, CudaEvent):
            with self._context:
                self._driver.call("cuStreamWaitEvent", self._handle, event.native.handle, 0)
            return
        with self._lock:
            self.waits.append(event)

    def synchronize(self) -> None:
        """Wait for all commands. Raises CudaError."""
        status = self._context.status(self._driver.lib.cuStreamSynchronize, self.handle)
        if status:
            raise self._driver.error("cuStreamSynchronize", status)


class _Selected(threading.local):
    """The stream of a thread; None for the device's own."""

    stream: CudaStream | None = None


class CudaStreams:
    """All streams of one device."""

    def __init__(self, context: PrimaryContext) -> None:
        """Create the device's own stream. Raises CudaError."""
        self._context = context
        self._selected = _Selected()
        self._all: list[CudaStream] = []
        self.only: CudaStream | None = None
        """The stream of all threads, as long as there is no other: looking up a thread's costs as much as a call."""
        self.own = self.only = self.open()

    def open(self) -> CudaStream:
        """Return a new stream, which lives as long as the device is open. Raises CudaError."""
        stream = CudaStream(self._context)
        self.only = None
        self._all = [*self._all, stream]
        return stream

    def all(self) -> Sequence[CudaStream]:
        """Return all streams, the device's own first."""
        return self._all

    def current(self) -> CudaStream:
        """Return the stream of the calling thread."""
        return self._selected.stream or self.own

    def switch(self, stream: CudaStream | None) -> CudaStream | None:
        """Select the stream of the calling thread, None for the device's own. Return the previous selection."""
        previous, self._selected.stream = self._selected.stream, stream
        return previous

    def release(self, address: int) -> None:
        """Release memory after the work of all streams so far. The context must be current. Raises CudaError."""
        stream, driver = self.current(), self._context.driver
        for other in self._all:
            if other is not stream:
                done = other.mark()  # destroyed with its last reference
                driver.call("cuStreamWaitEvent", stream.handle, done.handle, 0)
        driver.call("cuMemFreeAsync", address, stream.handle)

    def synchronize(self) -> None:
        """Wait for all commands of all streams. Raises CudaError."""
        for stream in self._all:
            stream.synchronize()
