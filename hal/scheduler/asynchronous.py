"""Asynchronous calls: work of several devices together that goes on beside the work of each.

A call reads and writes memory of its devices on streams of its own, where they have streams; elsewhere in line with their other
work. A lane of its own makes it, once the lanes of all its devices have started it. Each of them joins it before it uses a
result, or memory that the call used.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from polyhal.hal.memory.streams import begin_to_wait
from polyhal.hal.protocol import Event
from polyhal.hal.transfers.lane_link import LaneKey, LaneStoppedError

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.streams import Stream

_STOPPED: Any = object()
"""What comes in place of an event after `stop`."""


class AsynchronousCall:
    """A call that lanes start, make and join, once in a run."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)
        self._started: dict[Device, SimpleQueue[Event | None]] = {d: SimpleQueue() for d in devices}
        """When what is read is there and what is written is free; None where all is in line."""
        self._done: dict[Device, SimpleQueue[Event | None]] = {d: SimpleQueue() for d in devices}
        self._waited: dict[LaneKey, int] = defaultdict(int)

    def start(self, device: Device) -> None:
        """Let the call begin after all work that the thread has enqueued on a device."""
        self._started[device].put(_mark(device))

    def make(self, lane: LaneKey, run: Callable[[], None], streams: Mapping[Device, Stream]) -> None:
        """Call `run` when all devices have started, with the thread's work on `streams`. Raises LaneStoppedError."""
        events = [self._next(self._started[d], lane) for d in self._devices]
        with ExitStack() as stack:
            for device, event in zip(self._devices, events, strict=True):
                stack.enter_context(streams[device].apart())
                _wait_for(device, event)
            run()
            ends = [_mark(d) for d in self._devices]
        for device, end in zip(self._devices, ends, strict=True):
            self._done[device].put(end)

    def join(self, device: Device) -> None:
        """Let later work that the thread enqueues on a device come after the call. Raises LaneStoppedError."""
        if self._done[device].empty():
            device.flush()
        _wait_for(device, self._next(self._done[device], device))

    def waited(self, lane: LaneKey) -> int:
        """See `LaneLink`."""
        return self._waited[lane]

    def is_behind(self, lane: LaneKey) -> bool:
        """Devices begin together, in a lane beside them."""
        return False

    def stop(self) -> None:
        """Let all that wait go on with LaneStoppedError."""
        for queue in self._queues():
            queue.put(_STOPPED)

    def clear(self) -> None:
        """Forget what was started and not joined."""
        for queue in self._queues():
            while not queue.empty():
                queue.get()

    def _queues(self) -> Iterator[SimpleQueue[Event | None]]:
        yield from self._started.values()
        yield from self._done.values()

    def _next(self, queue: SimpleQueue[Event | None], lane: LaneKey) -> Event | None:
        begin = time.perf_counter_ns()
        event = queue.get()
        self._waited[lane] += time.perf_counter_ns() - begin
        if event is _STOPPED:
            raise LaneStoppedError
        return event


def _mark(device: Device) -> Event | None:
    """An event after the thread's work on a device and all that it waits for. None on a device without streams.

    The work is submitted.
    """
    if device.stream_backend is not None:
        begin_to_wait(device)
        return device.stream_backend.mark()
    device.flush()
    return None


def _wait_for(device: Device, event: Event | None) -> None:
    """Let marks of the thread's stream, and all other work that follows, come after an event."""
    if event is not None and device.stream_backend is not None:
        device.stream_backend.wait_for(event)
        begin_to_wait(device)
