"""Times captured steps on a device: with the host's clock, or in virtual time on a simulated device.

The shortest time counts: other work on the machine can only make a step slower. A loaded machine is slow for seconds at a
time, so steps are timed in several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from polyhal import Device, jit
from polyhal.profiler import Jitted

Step = Callable[[], object]
_RUNS_BEFORE = 4
"""Runs before timing: a captured step is recorded twice before it is only replayed."""
_SECONDS = 0.004
"""Seconds per sample: enough replays to hide the final wait, few enough that some samples are not interrupted."""
_SAMPLES = 8
_VIRTUAL_SAMPLES = 3
"""Samples in virtual time, where only other threads of the process and the garbage collector interfere."""
_PAUSE = 0.001
"""Seconds between samples: spinning threads of a driver go to sleep, and other programs run."""


class Stopwatch:
    """Times steps on one device."""

    def __init__(self, device: Device, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` returns seconds; `time.process_time` suits a CPU device on one core that other programs share."""
        self.device = device
        self._clock = clock
        self.is_virtual = hasattr(device.backend, "virtual_time")

    def now(self) -> float:
        """Return the time in seconds; virtual time on a simulated device."""
        backend: Any = self.device.backend
        return backend.virtual_time / 1e9 if self.is_virtual else self._clock()

    def replays(self, step: Step) -> float:
        """Return the seconds per replay of many in a row: the longer of host time and device time."""
        if self.is_virtual:  # subtract the host's wait at the end
            return (self._round(step, 5) - self._round(step, 1)) / 4
        number = max(1, round(_SECONDS / max(self._round(step, 2) / 2, 1e-7)))
        return self.shortest(lambda: self._round(step, number)) / number

    def enqueue(self, step: Step) -> float:
        """Return the host seconds to enqueue a replay on an idle device."""

        def once() -> float:
            self.device.synchronize()
            begin = self.now()
            step()
            return self.now() - begin

        return self.shortest(once, 4 * _SAMPLES)

    def turnaround(self, step: Step) -> float:
        """Return the seconds from the start of a replay until a waiting host continues."""
        return self.shortest(lambda: self._round(step, 1), 4 * _SAMPLES)

    def shortest(self, once: Callable[[], float], samples: int = _SAMPLES) -> float:
        """Return the shortest time of some samples; few suffice in virtual time."""
        if self.is_virtual:
            return min(once() for _ in range(_VIRTUAL_SAMPLES))
        times = []
        for _ in range(samples):
            times.append(once())
            time.sleep(_PAUSE)
        return min(times)

    def _round(self, step: Step, number: int) -> float:
        self.device.synchronize()
        begin = self.now()
        for _ in range(number):
            step()
        self.device.synchronize()
        return self.now() - begin


def captured(run: Step) -> Jitted[[], object]:
    """Capture a function, and run it until it is only replayed."""
    step = jit(run)
    for _ in range(_RUNS_BEFORE):
        step()
    return step
