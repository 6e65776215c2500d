"""Times of a captured step: predicted on a simulated device, measured on any other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from polyhal import Device
from polyhal.profiler import StepProfile

_MEASURED_RUNS = 7


class RunTimes(NamedTuple):
    """Times of one run of a step, in seconds."""

    launches: list[tuple[object, float]]
    """Each launch with its device time."""
    host: float
    """Host time to enqueue all launches."""

    @property
    def total(self) -> float:
        """Device time of all launches."""
        return sum(seconds for _, seconds in self.launches)


def time_runs(device: Device, run: Callable[[], object]) -> RunTimes:
    """Time a captured step: one run on a simulated device, medians of several runs on any other."""
    backend: Any = device.backend
    if hasattr(backend, "virtual_time"):
        return RunTimes(_launches(run), _host_seconds(device, run, lambda: backend.virtual_time * 1e-9))
    for _ in range(3):
        run()
    runs = [_launches(run) for _ in range(_MEASURED_RUNS)]
    host = statistics.median(_host_seconds(device, run, time.perf_counter) for _ in range(_MEASURED_RUNS))
    whole = statistics.median(_whole_seconds(device, run) for _ in range(_MEASURED_RUNS))
    launches = [(same[0][0], statistics.median(seconds for _, seconds in same)) for same in zip(*runs, strict=True)]
    # Distribute the gaps between kernels over the launches.
    stretch = whole / sum(seconds for _, seconds in launches)
    return RunTimes([(node, seconds * stretch) for node, seconds in launches], min(host, whole))


def _launches(run: Callable[[], object]) -> list[tuple[object, float]]:
    with StepProfile() as profile:
        run()
    return [(launch.node, (launch.end - launch.start) * 1e-9) for launch in profile.launches]


def _host_seconds(device: Device, run: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the host time to enqueue a captured step, by `clock`."""
    device.synchronize()
    begin = clock()
    run()
    elapsed = clock() - begin
    device.synchronize()
    return elapsed


def _whole_seconds(device: Device, run: Callable[[], object]) -> float:
    device.synchronize()
    begin = time.perf_counter()
    run()
    device.synchronize()
    return time.perf_counter() - begin
