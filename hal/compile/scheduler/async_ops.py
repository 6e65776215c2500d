"""Async ops: collectives and peer copies of several devices that overlap with the devices' other work.

An async op runs on streams of its own, where its devices have streams, and on their compute streams otherwise. A communication
worker runs it once the workers of all its devices have started it. Each joins it before it uses a result, or reuses
memory of the op. `cross_device` has the states.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.memory.streams import begin_to_wait
from polyhal.hal.core.transfers.worker_link import WorkerKey, WorkerStoppedError
from polyhal.hal.protocol import Event

if TYPE_CHECKING:
    from polyhal.hal.core.memory.streams import Stream
    from polyhal.hal.device import Device

_STOPPED: Any = object()
"""Sentinel that `stop` puts on the queues."""


class AsyncOp:
    """An op that device workers start and join and a communication worker runs, once per run of the step."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)
        self._started: dict[Device, SimpleQueue[Event | None]] = {d: SimpleQueue() for d in devices}
        """Event after which inputs are ready and outputs writable; None on a device without streams."""
        self._done: dict[Device, SimpleQueue[Event | None]] = {d: SimpleQueue() for d in devices}
        """Event after which outputs are ready and inputs reusable; None on a device without streams."""
        self._waited: dict[WorkerKey, int] = defaultdict(int)

    def start(self, device: Device) -> None:
        """Allow the op to begin after all work that the thread has enqueued on a device."""
        self._started[device].put(_mark(device))

    def execute(self, worker: WorkerKey, run: Callable[[], None], streams: Mapping[Device, Stream]) -> None:
        """Call `run` with `streams` selected, after a rendezvous of all devices. Raises WorkerStoppedError."""
        events = [self._next(self._started[d], worker) for d in self._devices]
        with ExitStack() as stack:
            for device, event in zip(self._devices, events, strict=True):
                stack.enter_context(streams[device].apart())
                _wait_for(device, event)
            run()
            ends = [_mark(d) for d in self._devices]
        for device, end in zip(self._devices, ends, strict=True):
            self._done[device].put(end)

    def join(self, device: Device) -> None:
        """Order later work that the thread enqueues on a device after the op. Raises WorkerStoppedError."""
        if self._done[device].empty():
            device.flush()
        _wait_for(device, self._next(self._done[device], device))

    def waited(self, worker: WorkerKey) -> int:
        """Return the nanoseconds that a worker has waited here; see `WorkerLink`."""
        return self._waited[worker]

    def is_behind(self, worker: WorkerKey) -> bool:
        """Return False: one communication worker enqueues the op for all devices at once."""
        return False

    def stop(self) -> None:
        """Wake all waiting workers with WorkerStoppedError."""
        for queue in self._queues():
            queue.put(_STOPPED)

    def clear(self) -> None:
        """Drop events of an op that was started and not joined."""
        for queue in self._queues():
            while not queue.empty():
                queue.get()

    def _queues(self) -> Iterator[SimpleQueue[Event | None]]:
        yield from self._started.values()
        yield from self._done.values()

    def _next(self, queue: SimpleQueue[Event | None], worker: WorkerKey) -> Event | None:
        begin = time.perf_counter_ns()
        event = queue.get()
        self._waited[worker] += time.perf_counter_ns() - begin
        if event is _STOPPED:
            raise WorkerStoppedError
        return event


def _mark(device: Device) -> Event | None:
    """Submit the thread's work on a device and return an event after it and its dependencies; None without streams."""
    if device.stream_backend is not None:
        begin_to_wait(device)
        return device.stream_backend.mark()
    device.flush()
    return None


def _wait_for(device: Device, event: Event | None) -> None:
    """Order later work of the thread's stream, events included, after an event."""
    if event is not None and device.stream_backend is not None:
        device.stream_backend.wait_for(event)
        begin_to_wait(device)
