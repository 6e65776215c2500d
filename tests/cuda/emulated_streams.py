# ruff: noqa: N802 - names of the library
"""Streams and events of the emulated driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulated_statuses import INVALID_HANDLE, INVALID_VALUE, NOT_READY, Refused

if TYPE_CHECKING:
    from emulated_machine import EmulatedContext, EmulatedStream, Machine, Operation

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING."""
_WITHOUT_TIME = 2
"""CU_EVENT_DISABLE_TIMING."""


@dataclass(eq=False)
class EmulatedEvent:
    """The point in a stream that was recorded last."""

    context: EmulatedContext
    flags: int
    point: Operation | None = None


class StreamFunctions:
    """The driver's functions for streams and events."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def cuStreamCreate(self, stream: Any, flags: int) -> None:
        context = self._machine.current()
        if flags & ~_NON_BLOCKING:
            raise Refused(INVALID_VALUE, f"flags {flags}")
        stream[0] = self._machine.handles.new("CUstream", context.open(blocking=flags == 0))

    def cuStreamDestroy_v2(self, stream: Any) -> None:
        self._machine.stream(stream)
        self._machine.handles.drop("CUstream", stream)  # its work runs when the context is synchronized

    def cuStreamSynchronize(self, stream: Any) -> None:
        queue = self._machine.stream(stream)
        queue.finish()
        queue.context.device.pool.synchronized()
        self._check(queue.context)

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        queue: EmulatedStream = self._machine.stream(stream)
        found: EmulatedEvent = self._machine.handles.get("CUevent", event)
        if found.point is not None:
            queue.add(None, (found.point,))

    def cuEventCreate(self, event: Any, flags: int) -> None:
        context = self._machine.current()
        if flags & ~7:
            raise Refused(INVALID_VALUE, f"flags {flags}")
        event[0] = self._machine.handles.new("CUevent", EmulatedEvent(context, flags))

    def cuEventDestroy_v2(self, event: Any) -> None:
        self._machine.current()
        self._machine.handles.drop("CUevent", event)

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        queue = self._machine.stream(stream)
        found: EmulatedEvent = self._machine.handles.get("CUevent", event)
        if found.context is not queue.context:
            raise Refused(INVALID_HANDLE, "the event belongs to another device than the stream")
        found.point = queue.add(None)

    def cuEventQuery(self, event: Any) -> None:
        """Let the device advance by one step, so that a host that polls arrives."""
        found: EmulatedEvent = self._machine.handles.get("CUevent", event)
        self._check(found.context)
        point = found.point
        if point is not None and not point.done:
            point.stream.step()
            raise Refused(NOT_READY, "the event is not complete")

    def cuEventSynchronize(self, event: Any) -> None:
        self._machine.current()
        found: EmulatedEvent = self._machine.handles.get("CUevent", event)
        if found.point is not None:
            found.point.stream.finish(found.point)
        self._check(found.context)

    def cuEventElapsedTime(self, milliseconds: Any, start: Any, end: Any) -> None:
        self._machine.current()
        events: list[EmulatedEvent] = [self._machine.handles.get("CUevent", e) for e in (start, end)]
        points = [e.point for e in events if not e.flags & _WITHOUT_TIME]
        if len(points) < 2 or None in points:
            raise Refused(INVALID_HANDLE, "an event has no time, or was never recorded")
        first, last = points
        assert first is not None and last is not None  # noqa: PT018
        if not (first.done and last.done):
            raise Refused(NOT_READY, "an event is not complete")
        milliseconds[0] = (last.end - first.end) / 1e6

    def _check(self, context: EmulatedContext) -> None:
        """Raise Refused if work of a context has failed."""
        if context.lost:
            raise Refused(context.lost, f"{context.device.name} was lost")
