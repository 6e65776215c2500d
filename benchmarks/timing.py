"""TimingSummary on a noisy machine: many repetitions, medians with quartiles, and competitors in alternation."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

SETTLE_SECONDS = 0.02
"""How long the idle threads of a framework's thread pool may spin before they sleep and free their cores."""


@dataclass(frozen=True, slots=True)
class TimingSummary:
    """Seconds per call: the median and the quartiles."""

    median: float
    low: float
    high: float
    repetitions: int

    def text(self, scale: float, unit: str) -> str:
        return f"{self.median * scale:.2f} {unit} [{self.low * scale:.2f}, {self.high * scale:.2f}]"


def summarize(samples: list[float]) -> TimingSummary:
    """Return the median and the quartiles of some samples."""
    if len(samples) < 2:
        return TimingSummary(samples[0], samples[0], samples[0], len(samples))
    low, _, high = statistics.quantiles(samples, n=4)
    return TimingSummary(statistics.median(samples), low, high, len(samples))


def per_call(function: Callable[[], object], number: int, repetitions: int = 20) -> TimingSummary:
    """Return seconds per call of a short function, from `repetitions` loops of `number` calls."""
    function()
    samples = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        for _ in range(number):
            function()
        samples.append((time.perf_counter() - begin) / number)
    return summarize(samples)


def calls_per_sample(function: Callable[[], object], min_seconds: float) -> int:
    """Return the number of calls that take `min_seconds`, by the fastest of three: the first one may be slow."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return max(1, math.ceil(min_seconds / min(times)))


def alternate(
    competitors: dict[str, Callable[[], object]],
    repetitions: int = 20,
    warmups: int = 2,
    settle: Callable[[], object] = lambda: None,
    min_seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, TimingSummary]:
    """Return seconds per call of several functions in alternation, so that a slow spell of the machine affects all equally.

    `settle` is called before each sample; it finishes the pending work of an earlier function, which is then not
    counted. A sample consists of as many calls as take `min_seconds`. `clock` may be `time.process_time`: on a shared
    machine, processor time on one core is more reliable than wall-clock time.
    """
    calls = {}
    for name, function in competitors.items():
        for _ in range(warmups):
            function()
        calls[name] = calls_per_sample(function, min_seconds)
    samples: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(repetitions):
        for name, function in competitors.items():
            settle()
            time.sleep(SETTLE_SECONDS)
            begin = clock()
            for _ in range(calls[name]):
                function()
            samples[name].append((clock() - begin) / calls[name])
    return {name: summarize(s) for name, s in samples.items()}
