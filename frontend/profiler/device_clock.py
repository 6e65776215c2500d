"""Timestamps of the launches of one device, on the clock of the host."""

from __future__ import annotations

import time
from collections.abc import Sequence

from polyhal.creation import ones
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.launch_resources import SupportsLaunchResources
from polyhal.hal.protocol import SupportsProfiling
from polyhal.profiler.records import LaunchRecord

_MARKERS = 5
"""Number of kernels from which the difference of the clocks is computed."""
_SHARED: dict[Device, _SharedClock] = {}
"""Clocks of devices that are being profiled. Profiles within each other share one."""


class DeviceClock:
    """The launches of a device from the creation of this object to `stop`."""

    def __init__(self, device: Device) -> None:
        """Wait for the device, and compare the clocks."""
        self.launches: list[LaunchRecord] = []
        """Launches of the parts that have ended, in the order in which they were enqueued."""
        shared = _SHARED.get(device)
        if shared is None:
            shared = _SHARED[device] = _SharedClock(device)
        else:
            shared.collect()
        self._shared = shared
        self._count = shared.count
        self._offset = 0
        """Launches of earlier parts, minus the markers of the current one."""
        shared.clocks.append(self)
        shared.begin()

    @property
    def launched(self) -> int | None:
        """The number of launches so far, without markers; None on devices that do not count them."""
        count = self._count
        return None if count is None else count() + self._offset

    def begin(self, markers: int) -> None:
        """Begin a part, which starts with a number of markers."""
        self._offset = len(self.launches) - markers

    def stop(self) -> list[LaunchRecord]:
        """Return the launches in the order in which they were enqueued. Waits for the device."""
        shared = self._shared
        shared.collect()
        shared.clocks.remove(self)
        if shared.clocks:
            shared.begin()
        else:
            del _SHARED[shared.device]
        return self.launches


class _SharedClock:
    """Collects the launches of a device in parts, each with its own comparison of the clocks.

    The clocks are compared by markers: kernels that are waited for. The one with the shortest round trip counts; the host's
    time in its middle is the device's time in its middle (F. Cristian, "Probabilistic clock synchronization", 1989).
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.clocks: list[DeviceClock] = []
        backend = device.backend
        self._backend = backend if isinstance(backend, SupportsProfiling) else None
        self._counting = backend if self._backend is not None and isinstance(backend, SupportsLaunchResources) else None
        self.count = None if self._counting is None else self._counting.profiled_launches
        """Counts the launches of this part, with its markers; None on devices that do not count them."""
        self._markers: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Begin a part."""
        if self._backend is None:
            return
        self._markers = []
        thread = dispatch.thread
        previous, thread.executor = thread.executor, dispatch.EAGER
        try:
            marker = ones((1,), device=self.device)
            marker.exp()
            self.device.synchronize()
            self._backend.start_profiling()
            for _ in range(_MARKERS):
                begin = time.perf_counter_ns()
                marker.exp()
                self.device.synchronize()
                self._markers.append((begin, time.perf_counter_ns()))
        finally:
            thread.executor = previous
        for clock in self.clocks:
            clock.begin(len(self._markers))

    def collect(self) -> None:
        """End the part, and add its launches to each clock."""
        if self._backend is None:
            return
        self.device.synchronize()
        facts = list(self._counting.launch_resources()) if self._counting is not None else []
        times = list(self._backend.stop_profiling())
        facts += [None] * (len(times) - len(facts))
        offset, name = _offset(self._markers, times), self.device.name
        skipped, self._markers = len(self._markers), []
        for clock in self.clocks:
            clock.launches += [
                LaunchRecord(kernel, name, start + offset, end + offset, facts=known)
                for (kernel, start, end), known in zip(times[skipped:], facts[skipped:], strict=True)
            ]


def _offset(host: Sequence[tuple[int, int]], launches: Sequence[tuple[str, int, int]]) -> int:
    """Return the host's time minus the device's, from the marker with the shortest round trip."""
    (begin, end), (_, start, stop) = min(
        zip(host, launches, strict=False), key=lambda pair: pair[0][1] - pair[0][0], default=((0, 0), ("", 0, 0))
    )
    return (begin + end - start - stop) // 2


__all__ = ["DeviceClock"]
