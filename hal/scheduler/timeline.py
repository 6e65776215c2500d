"""Timelines of captured steps on several devices: when each one computes, communicates and waits.

A timed run is like any other, with all lanes at once, except that a lane waits for its device before and after it meets other
lanes. Simulated devices, whose time is not the host's, are timed by their own clocks.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.ir.graph import Node
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import TRANSFER, SupportsProfiling
from polyhal.hal.scheduler.crossings import JOIN, MEMBER, RECEIVE, SEND, START

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.scheduler.executable import Executable
    from polyhal.hal.scheduler.lanes import Lane


class Activity(enum.StrEnum):
    """What a lane does for a while."""

    COMPUTE = "compute"
    SEND = "send"
    """Starts to give something to other lanes."""
    WAIT = "wait"
    """Gets something from other lanes, for which it may have to wait."""
    COMMUNICATE = "communicate"
    """Carries out a collective, or a copy between peers."""


_ACTIVITIES = {
    SEND: Activity.SEND, START: Activity.SEND, RECEIVE: Activity.WAIT, JOIN: Activity.WAIT, MEMBER: Activity.COMMUNICATE
}  # fmt: skip


class Span(NamedTuple):
    """What a lane did for a while. Times are in nanoseconds."""

    lane: str
    """The name of a device, or of what runs beside devices."""
    device: Device | None
    """None beside devices."""
    activity: Activity
    nodes: tuple[Node | None, ...]
    """None for copies at the end of a step."""
    start: int
    end: int
    """On the clock of the host; on that of a simulated host for simulated devices."""
    busy: int
    """How long the device worked."""
    virtual: bool
    """Whether the clock is a simulated one."""


class Timeline(NamedTuple):
    """One run of a step."""

    executable: Executable
    spans: tuple[Span, ...]
    """Those of each lane in order."""
    elapsed: dict[bool, int]
    """Nanoseconds of the run: on the host's clock (False), and on the clock of simulated devices (True) if there are any."""

    def of(self, device: Device) -> list[Span]:
        """What a device did, in order."""
        return [s for s in self.spans if s.device is device]

    def busy(self, device: Device) -> int:
        """Nanoseconds for which a device computed."""
        return sum(s.busy for s in self.of(device) if s.activity is Activity.COMPUTE)

    def waited(self, device: Device) -> int:
        """Nanoseconds for which a device waited for others."""
        return sum(s.busy for s in self.of(device) if s.activity is Activity.WAIT)


def timeline(executable: Executable) -> Timeline:
    """Run a step once, as `Executable.run` has bound it, and return what its lanes did."""
    lanes = executable.lanes
    assert lanes is not None, "one device has no lanes"
    spans: dict[int, list[Span]] = {id(lane): [] for lane in lanes.all}
    begin = time.perf_counter_ns()

    def timed(lane: Lane) -> Iterator[Callable[[], None]]:
        return _LaneClock(lane, begin, spans[id(lane)]).actions()

    lanes.timed = timed
    try:
        lanes.run()
    finally:
        lanes.timed = None
    elapsed = {False: time.perf_counter_ns() - begin}
    every = tuple(s for of_lane in spans.values() for s in of_lane)
    if ends := [s.end for s in every if s.virtual]:  # each thread of a simulated host has a time of its own
        elapsed[True] = max(ends)
    return Timeline(executable, every, elapsed)


class _LaneClock:
    """Times the actions of one lane."""

    def __init__(self, lane: Lane, begin: int, spans: list[Span]) -> None:
        """`begin` is when the run began on the host's clock. On a simulated one that is when the lane does."""
        self._lane = lane
        self._spans = spans
        self._devices = [lane.device] if lane.device is not None else _members(lane)
        self._virtual = all(map(_is_virtual, self._devices))
        clock = _clock([d for d in self._devices if _is_virtual(d) is self._virtual])
        assert clock is not None
        self._now = clock
        self._begin = clock() if self._virtual else begin

    def actions(self) -> Iterator[Callable[[], None]]:
        lane = self._lane
        beside = lane.device is None
        computing: list[Node | None] = []
        start = self._start_computing()
        for partition, action in zip(lane.partitions, lane.actions, strict=True):
            node = partition.nodes[0]
            if not beside and (node is None or Trait.CROSS_DEVICE not in node.op.traits):
                computing += partition.nodes
                yield action
                continue
            if not beside:
                self._end_computing(computing, start)
                computing = []
            assert node is not None
            activity = Activity.COMMUNICATE if beside else _ACTIVITIES[node.op]
            waited, begin = lane.waited, self._now()
            yield action
            if beside:
                self._finish_streams()
            elif activity is not Activity.SEND:
                self._finish()
            # A lane beside devices begins with what it waits for, which is not its work.
            begin += lane.waited - waited if beside and not self._virtual else 0
            end = self._now()
            self._add(activity, (node,), begin, end, end - begin)
            if not beside:
                start = self._start_computing()
        if not beside:
            self._end_computing(computing, start)

    def _start_computing(self) -> int:
        if self._virtual and self._lane.device is not None:
            backend: Any = self._lane.device.backend
            backend.start_profiling()
        return self._now()

    def _end_computing(self, nodes: Sequence[Node | None], start: int) -> None:
        device = self._lane.device
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
        lane = self._lane
        name = lane.device.name if lane.device is not None else _name(lane.key)
        begin = self._begin
        self._spans.append(Span(name, lane.device, activity, nodes, start - begin, end - begin, busy, self._virtual))

    def _finish(self) -> None:
        """Wait for the work that this thread has enqueued, and no other."""
        for device in self._devices:
            if device.stream_backend is not None:
                device.stream_backend.mark().wait()
            else:
                device.synchronize()

    def _finish_streams(self) -> None:
        for device in self._devices:
            if device.stream_backend is not None:
                with self._lane.streams[device].apart():
                    device.stream_backend.mark().wait()


def _members(lane: Lane) -> list[Device]:
    """The devices whose values a lane beside them moves."""
    devices: dict[Device, None] = {}
    for partition in lane.partitions:
        (node,) = partition.nodes
        assert node is not None
        devices.update(dict.fromkeys(lane.key if isinstance(lane.key, tuple) else node.params[1].devices))
    return list(devices)


def _name(key: Any) -> str:
    return " to ".join(d.name for d in key) if isinstance(key, tuple) else str(key)


def _is_virtual(device: Device) -> bool:
    """Whether a device's time is not the host's."""
    return hasattr(device.backend, "virtual_time") and isinstance(device.backend, SupportsProfiling)


def _clock(devices: Sequence[Device]) -> Callable[[], int] | None:
    """The clock of devices of one kind, in nanoseconds; None for no devices."""
    if not devices:
        return None
    if _is_virtual(devices[0]):
        backend: Any = devices[0].backend
        return lambda: int(backend.virtual_time)
    return time.perf_counter_ns


__all__ = ["Activity", "Span", "Timeline", "timeline"]
