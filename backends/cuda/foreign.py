"""Memory and streams of other CUDA libraries of the process, such as PyTorch and CuPy, which use the same context.

Source: CUDA Driver API, sections "Unified Addressing" and "Stream synchronization behavior".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.backends.common.cuda_driver import ffi
from polyhal.backends.cuda.events import CudaEvent, recorded
from polyhal.backends.cuda.memory import CudaMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polyhal.backends.cuda.runtime import CudaRuntime

CUDA = 2
"""DLPack's number for CUDA devices."""
_DEFAULT_STREAM = 1
"""CU_STREAM_LEGACY, DLPack's number of the default stream."""
_DEVICE_ORDINAL = 9
"""CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL."""
_ACTION = "ordering work with another library's stream"


class ForeignCudaMemory(CudaMemory):
    """Memory that another library has allocated, and releases."""

    __slots__ = ()


class _LastEvent:
    """The end of several streams. Implements `polyhal.hal.protocol.Event`."""

    def __init__(self, events: Sequence[CudaEvent]) -> None:
        self._events = events

    def wait(self) -> None:
        """Block until all events are complete. Raises the typed error of work that failed."""
        for event in self._events:
            event.wait()

    def is_complete(self) -> bool:
        """Return whether all events are complete, without blocking."""
        return all(event.is_complete() for event in self._events)


class ForeignStreams:
    """The order between the streams of one device and those of other libraries."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime
        self._driver = runtime.driver

    def number_of_device(self, address: int) -> int | None:
        """Return the ordinal of the device that has the memory at an address; None for memory that CUDA does not know."""
        out = ffi.new("int *")
        with self._runtime.calling("looking up an address"):
            status = self._driver.status("cuPointerGetAttribute", out, _DEVICE_ORDINAL, address)
        return None if status else int(out[0])

    def number(self) -> int:
        """Return the handle of the thread's stream."""
        return int(ffi.cast("uintptr_t", self._runtime.streams.current().handle))

    def wait_for(self, number: int) -> None:
        """Make the thread's stream wait for everything so far on another one."""
        with self._runtime.calling(_ACTION):
            self._order(_stream(number), self._runtime.streams.current().handle)

    def let_wait(self, number: int) -> None:
        """Make another stream wait for everything so far on the thread's."""
        with self._runtime.calling(_ACTION):
            self._order(self._runtime.streams.current().handle, _stream(number))

    def mark_everything(self) -> _LastEvent:
        """Return an event after everything so far on all streams, and on the default stream.

        The default stream waits for all streams of other libraries but for those that were created as non-blocking.
        """
        runtime = self._runtime
        with runtime.calling("marking a point of all streams"):
            marks = [stream.mark() for stream in runtime.streams.all()]
            marks.append(recorded(runtime.context, _stream(_DEFAULT_STREAM)))
        return _LastEvent([CudaEvent(runtime.context, runtime.errors, mark) for mark in marks])

    def _order(self, first: Any, then: Any) -> None:
        """Make one stream of the driver wait for another. The context must be current. Raises CudaError."""
        if first != then:
            done = recorded(self._runtime.context, first)  # destroyed with its last reference
            self._driver.call("cuStreamWaitEvent", then, done.handle, 0)


def _stream(number: int) -> Any:
    """Return the stream of a number: the driver reserves the handles 1 and 2 for default streams, as DLPack does."""
    return ffi.cast("CUstream", number)
