"""Timing that survives a noisy machine: many repetitions, medians and spread, alternating between competitors."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

SETTLE_SECONDS = 0.02
"""How long the idle threads of a framework's pool may spin before they sleep, taking a core from whoever is next."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: median, and the quartiles as spread."""

    median: float
    low: float
    high: float
    repetitions: int

    def text(self, scale: float, unit: str) -> str:
        return f"{self.median * scale:.2f} {unit} [{self.low * scale:.2f}, {self.high * scale:.2f}]"


def summarize(samples: list[float]) -> Timing:
    """The median and the quartiles of some timings."""
    if len(samples) < 2:
        return Timing(samples[0], samples[0], samples[0], len(samples))
    low, _, high = statistics.quantiles(samples, n=4)
    return Timing(statistics.median(samples), low, high, len(samples))


def per_call(function: Callable[[], object], number: int, repetitions: int = 20) -> Timing:
    """The time of one call of a short function, from `repetitions` loops of `number` calls."""
    function()
    samples = []
    for _ in range(repetitions):
        begun = time.perf_counter()
        for _ in range(number):
            function()
        samples.append((time.perf_counter() - begun) / number)
    return summarize(samples)


def alternate(
    competitors: dict[str, Callable[[], object]],
    repetitions: int = 20,
    warmups: int = 2,
    settle: Callable[[], object] = lambda: None,
    lasting: float = 0.0,
) -> dict[str, Timing]:
    """Seconds per call of several functions in turn, so that a slow spell of the machine hits all of them alike.

    `settle` is called before each; what functions leave under way and do not wait for does not count then. A sample is of
    as many calls as last `lasting` seconds.
    """
    calls = {}
    for name, function in competitors.items():
        for _ in range(warmups):
            function()
        begun = time.perf_counter()
        function()
        calls[name] = max(1, math.ceil(lasting / (time.perf_counter() - begun)))
    samples: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(repetitions):
        for name, function in competitors.items():
            settle()
            time.sleep(SETTLE_SECONDS)
            begun = time.perf_counter()
            for _ in range(calls[name]):
                function()
            samples[name].append((time.perf_counter() - begun) / calls[name])
    return {name: summarize(s) for name, s in samples.items()}
