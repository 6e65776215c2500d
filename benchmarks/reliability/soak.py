"""Soak: training on several devices in turn for as long as wanted. Nothing may grow, and equal trainings
result in equal bits."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import polyhal as ph
from benchmarks.reliability.machine_devices import left_on, used_on
from benchmarks.reliability.trainings import RECIPES, Training, weights_of

_TURN = 10
"""Steps of one training before it is the turn of the next."""
_SLACK = {"resident": 8 << 20, "reserved": 1 << 20}
"""Bytes of permitted variation: partially used pages of allocators, free blocks of the pools."""
_ROWS = 6
"""Moments of the course that the result keeps."""


class Held(NamedTuple):
    """Resources of the process at one moment. None may grow."""

    resident: int
    """Bytes of the process in RAM; 0 if the system does not report it."""
    used: int
    """Bytes in use in the pools of all devices."""
    reserved: int
    """Bytes that the pools have of their devices."""
    blocks: int
    """Live blocks of the pools: handles of drivers."""
    tensors: int
    files: int
    """Open files; 0 if the system does not report them."""
    threads: int


@dataclass(frozen=True, slots=True)
class SoakResult:
    """Counts of a campaign."""

    minutes: float
    devices: dict[str, str]
    steps: int
    repeated: int
    """Trainings of new models, whose weights had to equal the weights of the first of their kind, bit for
    bit."""
    growth: dict[str, int]
    """By how much each figure of `Held` was, at most, above that after the first tenth of the time."""
    leaks: int
    """Memory in the pools after the last training."""
    course: dict[str, dict[str, int]]
    """Resources by elapsed time."""
    findings: tuple[str, ...]


@dataclass(slots=True)
class _Soak:
    devices: Sequence[ph.Device]
    end: float
    steps: int = 0
    repeated: int = 0
    findings: list[str] = field(default_factory=list)
    expected: dict[tuple[str, ...], bytes] = field(default_factory=dict)
    """The weights after the first training of each kind."""

    def train(self, training: Training) -> None:
        """Train for some steps more."""
        training.begin_again()
        for _ in range(_TURN):
            training.step()
        self.steps += _TURN

    def repeat(self, device: ph.Device, name: str, captured: bool) -> None:
        """Train a new model, and compare its weights with those of the first such model."""
        key = (device.name, name, "captured" if captured else "eager")
        training = Training(RECIPES[name], device, captured=captured)
        self.train(training)
        weights = weights_of(training.checkpoint())
        if key in self.expected:
            self.repeated += 1
            if weights != self.expected[key]:
                self.findings.append(f"{', '.join(key)}: other bits after {self.steps:,} steps")
        self.expected.setdefault(key, weights)


def soak(minutes: float, names: Sequence[str], recipes: Sequence[str] = tuple(RECIPES)) -> SoakResult:
    """Train models on devices in turn for some minutes, eagerly and captured, both continued and new
    models each time."""
    begin = time.monotonic()
    devices = [ph.Device(name) for name in names]
    before = used_on(names)
    run = _Soak(devices, begin + 60 * minutes)
    course = list(_laps(run, begin, recipes))
    first = next(held for minute, held in course if minute >= minutes / 10)
    later = [held for minute, held in course if minute >= minutes / 10]
    growth = {name: max(getattr(h, name) for h in later) - getattr(first, name) for name in Held._fields}
    run.findings += [f"{name} grew by {amount:,}" for name, amount in growth.items() if amount > _SLACK.get(name, 0)]
    leaks = [*left_on(before)]
    last = course[-1][0]
    kept = [min(course, key=lambda lap: abs(lap[0] - last * row / _ROWS)) for row in range(_ROWS + 1)]
    rows = {f"{minute:.1f} min": held._asdict() for minute, held in kept}
    about = {d.name: f"{d.info.name} ({d.info.driver})" for d in devices}
    return SoakResult(minutes, about, run.steps, run.repeated, growth, len(leaks), rows, (*run.findings, *leaks))


def _laps(run: _Soak, begin: float, recipes: Sequence[str]) -> Iterator[tuple[float, Held]]:
    """Train all models on all devices until the time is over. Yields elapsed minutes and the resources in
    use."""
    kinds = [(name, captured) for name in recipes for captured in (False, True)]
    kept = [Training(RECIPES[name], d, captured=captured) for name, captured in kinds for d in run.devices]
    for lap in itertools.count():
        for training in kept:
            run.train(training)
        for device in run.devices:
            run.repeat(device, *kinds[lap % len(kinds)])
        yield (time.monotonic() - begin) / 60, held(run.devices)
        if time.monotonic() > run.end:
            return


def held(devices: Sequence[ph.Device]) -> Held:
    """Measure the resources of this process now."""
    gc.collect()
    stats = [d.memory_stats() for d in devices]
    tensors = sum(issubclass(type(x), ph.Tensor) for x in gc.get_objects())
    return Held(
        _resident_bytes(),
        sum(s.used for s in stats),
        sum(s.reserved for s in stats),
        sum(len(d.pool.live_blocks()) for d in devices),
        tensors,
        _open_files(),
        threading.active_count(),
    )


def _resident_bytes() -> int:
    try:
        fields = Path("/proc/self/statm").read_text(encoding="utf-8").split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


if __name__ == "__main__":
    print(soak(float(sys.argv[1]), sys.argv[2:]))
