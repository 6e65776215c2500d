"""Timelines of captured steps on several devices: intervals in which each device computes, communicates and waits.

A timed run uses all workers concurrently, like any other run, but a worker synchronizes its device before and after each
cross-device op. Simulated devices are timed by their own clocks.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.ir.graph import Node
from polyhal.hal.compile.scheduler.cross_device import ENQUEUE, JOIN, RECEIVE, SEND, START
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import TRANSFER, SupportsProfiling

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.device_workers import DeviceWorker
    from polyhal.hal.compile.scheduler.executable import Executable
    from polyhal.hal.device import Device


class Activity(enum.StrEnum):
    """Activity of a worker during a span."""

    COMPUTE = "compute"
    SEND = "send"
    """Start of a send to other workers."""
    WAIT = "wait"
    """Receive from other workers, which may block."""
    COMMUNICATE = "communicate"
    """Execution of a collective or a peer copy."""


_ACTIVITIES = {
    SEND: Activity.SEND,
    START: Activity.SEND,
    RECEIVE: Activity.WAIT,
    JOIN: Activity.WAIT,
    ENQUEUE: Activity.COMMUNICATE,
}


class Span(NamedTuple):
    """Interval of one activity of a worker. Times are in nanoseconds."""

    worker: str
    """Name of a device, or of a communication worker."""
    device: Device | None
    """Device of the worker; None for a communication worker."""
    activity: Activity
    nodes: tuple[Node | None, ...]
    """Nodes that ran; None for copies at the end of a step."""
    start: int
    end: int
    """End on the host's clock, or on the simulated host's clock for simulated devices."""
    busy: int
    """Time for which the device worked."""
    virtual: bool
    """True if the clock is simulated."""


class Timeline(NamedTuple):
    """One run of a step."""

    executable: Executable
    spans: tuple[Span, ...]
    """Spans, in order for each worker."""
    elapsed: dict[bool, int]
    """Nanoseconds of the run on the host's clock (False), and on the clock of simulated devices, if any (True)."""

    def of(self, device: Device) -> list[Span]:
        """Return the spans of a device, in order."""
        return [s for s in self.spans if s.device is device]

    def busy(self, device: Device) -> int:
        """Return the nanoseconds for which a device computed."""
        return sum(s.busy for s in self.of(device) if s.activity is Activity.COMPUTE)

    def waited(self, device: Device) -> int:
        """Return the nanoseconds for which a device waited for others."""
        return sum(s.busy for s in self.of(device) if s.activity is Activity.WAIT)


def timeline(executable: Executable) -> Timeline:
    """Run a step once, as `Executable.run` has bound it, and return the timeline of its workers."""
    workers = executable.workers
    assert workers is not None, "one device has no workers"
    spans: dict[int, list[Span]] = {id(worker): [] for worker in workers.all}
    begin = time.perf_counter_ns()

    def timed(worker: DeviceWorker) -> Iterator[Callable[[], None]]:
        return _WorkerClock(worker, begin, spans[id(worker)]).actions()

    workers.timed = timed
    try:
        workers.run()
    finally:
        workers.timed = None
    elapsed = {False: time.perf_counter_ns() - begin}
    every = tuple(s for of_worker in spans.values() for s in of_worker)
    if ends := [s.end for s in every if s.virtual]:  # each thread of a simulated host has its own time
        elapsed[True] = max(ends)
    return Timeline(executable, every, elapsed)


class _WorkerClock:
    """Timer of the actions of one worker."""

    def __init__(self, worker: DeviceWorker, begin: int, spans: list[Span]) -> None:
        """Start a timer; `begin` is the start of the run on the host's clock. On a simulated clock the worker starts it."""
        self._worker = worker
        self._spans = spans
        self._devices = [worker.device] if worker.device is not None else _participants(worker)
        self._virtual = all(map(_is_virtual, self._devices))
        clock = _clock([d for d in self._devices if _is_virtual(d) is self._virtual])
        assert clock is not None
        self._now = clock
        self._begin = clock() if self._virtual else begin

    def actions(self) -> Iterator[Callable[[], None]]:
        worker = self._worker
        overlaps = worker.device is None
        computing: list[Node | None] = []
        start = self._start_computing()
        for partition, action in zip(worker.partitions, worker.actions, strict=True):
            node = partition.nodes[0]
            if not overlaps and (node is None or Trait.CROSS_DEVICE not in node.op.traits):
                computing += partition.nodes
                yield action
                continue
            if not overlaps:
                self._end_computing(computing, start)
                computing = []
            assert node is not None
            activity = Activity.COMMUNICATE if overlaps else _ACTIVITIES[node.op]
            waited, begin = worker.waited, self._now()
            yield action
            if overlaps:
                self._finish_streams()
            elif activity is not Activity.SEND:
                self._finish()
            # The action of a communication worker begins with a wait for its participants, which is not its work.
            begin += worker.waited - waited if overlaps and not self._virtual else 0
            end = self._now()
            self._add(activity, (node,), begin, end, end - begin)
            if not overlaps:
                start = self._start_computing()
        if not overlaps:
            self._end_computing(computing, start)

    def _start_computing(self) -> int:
        if self._virtual and self._worker.device is not None:
            backend: Any = self._worker.device.backend
            backend.start_profiling()
        return self._now()

    def _end_computing(self, nodes: Sequence[Node | None], start: int) -> None:
        device = self._worker.device
        assert device is not None
        if nodes:
            self._finish()
        end = self._now()
        busy = end - start
        if self._virtual:
            backend: Any = device.backend
            busy = sum(stop - begin for name, begin, stop in backend.stop_profiling() if name != TRANSFER)
        if nodes:
            self._add(Activity.COMPUTE, tuple(nodes), start, end, busy)

    def _add(self, activity: Activity, nodes: tuple[Node | None, ...], start: int, end: int, busy: int) -> None:
        worker = self._worker
        name = worker.device.name if worker.device is not None else _name(worker.key)
        begin = self._begin
        self._spans.append(Span(name, worker.device, activity, nodes, start - begin, end - begin, busy, self._virtual))

    def _finish(self) -> None:
        """Wait for work that this thread has enqueued, but not for other threads' work."""
        for device in self._devices:
            if device.stream_backend is not None:
                device.stream_backend.mark().wait()
            else:
                device.synchronize()

    def _finish_streams(self) -> None:
        for device in self._devices:
            if device.stream_backend is not None:
                with self._worker.streams[device].apart():
                    device.stream_backend.mark().wait()


def _participants(worker: DeviceWorker) -> list[Device]:
    """Return the devices of a communication worker's ops."""
    devices: dict[Device, None] = {}
    for partition in worker.partitions:
        (node,) = partition.nodes
        assert node is not None
        devices.update(dict.fromkeys(worker.key if isinstance(worker.key, tuple) else node.params[1].devices))
    return list(devices)


def _name(key: Any) -> str:
    return " to ".join(d.name for d in key) if isinstance(key, tuple) else str(key)


def _is_virtual(device: Device) -> bool:
    """Return whether a device has a simulated clock."""
    return hasattr(device.backend, "virtual_time") and isinstance(device.backend, SupportsProfiling)


def _clock(devices: Sequence[Device]) -> Callable[[], int] | None:
    """Return the clock of devices, all simulated or none, in nanoseconds; None for no devices."""
    if not devices:
        return None
    if _is_virtual(devices[0]):
        backend: Any = devices[0].backend
        return lambda: int(backend.virtual_time)
    return time.perf_counter_ns


__all__ = ["Activity", "Span", "Timeline", "timeline"]
