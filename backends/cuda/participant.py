"""Devices that take part in collectives, with windows: memory that all devices and processes of a group map."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

from polyhal.backends.common.cuda_driver import CudaError
from polyhal.backends.common.cuda_virtual_memory import (
    POSIX_DESCRIPTORS,
    VIRTUAL_MEMORY,
    CudaAllocation,
    VirtualMemory,
)
from polyhal.backends.cuda.events import CudaEvent
from polyhal.backends.cuda.memory import CudaMemory
from polyhal.backends.cuda.runtime import CudaRuntime
from polyhal.backends.cuda.streams import CudaStream
from polyhal.backends.opencl_c.collectives.participant import Window


class CudaWindowMemory:
    """Windows of one device, and mappings of other devices' windows. Implements `WindowMemory`."""

    def __init__(self, runtime: CudaRuntime) -> None:
        """Raises CudaError."""
        self._runtime = runtime
        self.memory = VirtualMemory(runtime.driver, runtime.ordinal)
        self._users = [runtime.ordinal]
        """Devices with access to the windows."""
        self._windows: list[CudaAllocation] = []
        self._imports: list[CudaAllocation] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _release, self.memory, self._windows, self._imports)

    def share_with(self, other: CudaWindowMemory) -> bool:
        """Give both devices access to present and future windows of either, if they support it. Raises CudaError."""
        if not (self.memory.can_access(other.memory) and other.memory.can_access(self.memory)):
            return False
        self._grant(other.memory.number)
        other._grant(self.memory.number)
        return True

    def _grant(self, device: int) -> None:
        with self._lock:
            if device not in self._users:
                for window in self._windows:
                    self.memory.grant(window, [device])
                self._users.append(device)

    def window(self, nbytes: int) -> Window:
        """Allocate a window. Raises CudaError."""
        runtime = self._runtime
        with self._lock:
            allocation = self.memory.allocate(nbytes, self._users)
            self._windows.append(allocation)
        with runtime.context:
            stream = runtime.streams.own
            runtime.driver.call("cuMemsetD8Async", allocation.address, 0, allocation.nbytes, stream.handle)
            stream.synchronize()
        memory = CudaMemory(allocation.address, allocation.nbytes)
        return Window(memory, allocation.nbytes, self.memory.export(allocation))

    def import_memory(self, descriptor: int, nbytes: int) -> CudaMemory:
        """Map another device's window, and close its descriptor. Raises CudaError."""
        allocation = self.memory.import_memory(descriptor, nbytes, [self._runtime.ordinal])
        with self._lock:
            self._imports.append(allocation)
        return CudaMemory(allocation.address, nbytes)


def _release(memory: VirtualMemory, windows: list[CudaAllocation], imports: list[CudaAllocation]) -> None:
    """Unmap all windows when the device is closed or the process ends."""
    for allocation in [*imports, *windows]:
        with contextlib.suppress(CudaError):
            memory.free(allocation)


class CudaParticipant:
    """One device. Implements `Participant` of `backends.opencl_c.collectives`."""

    failures = (CudaError,)
    """Exceptions of the driver."""
    recordable = True
    """See `Participant`."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self.runtime = runtime
        self.exchangers: dict[Any, Any] = {}
        """See `Participant`."""
        self._windows: CudaWindowMemory | None = None
        self._lock = threading.Lock()

    def window_memory(self) -> CudaWindowMemory | None:
        """Return memory that other devices can map; None if the device does not support it."""
        driver, number = self.runtime.driver, self.runtime.ordinal
        with self._lock:
            if self._windows is None:
                with contextlib.suppress(CudaError):
                    if driver.attribute(VIRTUAL_MEMORY, number) and driver.attribute(POSIX_DESCRIPTORS, number):
                        self._windows = CudaWindowMemory(self.runtime)
            return self._windows

    def recording(self) -> bool:
        """Return whether launches of the calling thread are being recorded."""
        recorder = self.runtime.recorder
        return recorder is not None and recorder.accepts()

    def stream(self) -> CudaStream:
        """Return the stream of the calling thread."""
        return self.runtime.streams.current()

    def make_room(self, launches: int) -> None:
        """No-op: a full queue of the driver has whole exchanges only, and empties without the host."""

    def mark(self, again: CudaEvent | None = None) -> CudaEvent:
        """Return an event after everything enqueued so far on the thread's stream: `again`, if given."""
        runtime = self.runtime
        stream = self.stream()
        if again is not None:
            with runtime.context:
                if not runtime.driver.status("cuEventRecord", again.native.handle, stream.handle):
                    return again
        with runtime.calling("marking the end of a collective"):
            return CudaEvent(runtime.context, runtime.errors, stream.mark())

    def wait_for(self, event: CudaEvent) -> None:
        """Make later work on the thread's stream wait for an event."""
        with self.runtime.calling("waiting for a collective"):
            self.stream().wait_for(event)

    def flush(self) -> None:
        """No-op: the driver submits immediately."""
