"""Processes that write without end, to be killed at any moment. Each reports finished writes through a
pipe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import polyhal as ph
from polyhal import training
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.kernels import tuning
from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog
from polyhal.hal.core.kernels.tuning import TunedChoice
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.device import Device
from polyhal.hal.system.discovery.benchmark import BenchmarkTimes
from polyhal.hal.system.discovery.benchmark_cache import BenchmarkCache
from polyhal.training import Corpus, RunFolder
from polyhal.training.metrics import MetricsRow

INFO = DeviceInfo("opencl", "a device", DeviceType.GPU, 2**30, "driver 1", "id")
CORPUS = Corpus("text", "text", "".join(f"{n} green bottles hanging on the wall,\n" for n in range(99, 0, -1)))
OPTIONS: Mapping[str, Any] = {
    "layers": 1,
    "heads": 1,
    "width": 8,
    "context": 8,
    "batch_size": 2,
    "steps": 30,
    "log_every": 2,
    "eval_every": 2,
    "sample_every": 0,
    "dropout": 0.1,
    "seed": 3,
}


def state(number: int) -> dict[str, Any]:
    """Return a state of about 100 kB that its number determines."""
    random = np.random.default_rng(number)
    tensors = [ph.tensor(random.normal(size=size), ph.float32, "numpy") for size in (20_000, 5_000, 3)]
    return {"number": number, "tensors": tensors, "text": f"state {number} " * 50}


def save_checkpoints(report: Connection, path: str, seed: int) -> None:
    """Replace a checkpoint again and again."""
    report.send(None)
    for number in count(seed):
        ph.save(state(number), path)
        report.send(number)


def payload(number: int) -> bytes:
    """Return a program that its number determines."""
    return Random(number).randbytes(30_000)


def store_programs(report: Connection, path: str, seed: int) -> None:
    """Add programs to a cache that is small enough to evict some."""
    cache = DiskCache(Path(path), limit=400_000)
    report.send(None)
    for number in count(seed):
        cache.store(DiskCache.key([str(number)]), payload(number))
        report.send(number)


def choice(number: int) -> TunedChoice:
    """Return a tuned choice that its number determines."""
    return TunedChoice("tile", f"shape {number}", {"rows": number}, 1.5, "2026-01-01")


def add_choices(report: Connection, path: str, seed: int) -> None:
    """Add tuned choices, as searches do at their end."""
    os.environ["POLYHAL_CACHE_DIR"] = path
    report.send(None)
    for number in count(seed):
        found = choice(number)
        tuning.add(INFO, {found.key: found})
        report.send(number)


class _Backend:
    """A backend's entry in the benchmark cache."""

    priority = 0

    def __init__(self, name: str) -> None:
        self.name = name


def candidates() -> list[Candidate]:
    """Return two devices."""
    return [Candidate(_Backend(name), INFO) for name in ("one", "two")]  # type: ignore[arg-type]


def times(candidate: Candidate, seconds: float) -> BenchmarkTimes:
    """Return a measurement."""
    return BenchmarkTimes(0.5, 1.0, 64)


def benchmark(report: Connection, path: str, seed: int) -> None:
    """Measure devices again and again."""
    os.environ.update(POLYHAL_CACHE_DIR=path, POLYHAL_MEASURE_TIMEOUT="30")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    report.send(None)
    for number in count(seed):
        BenchmarkCache(times).ensure(candidates(), refresh=True)
        report.send(number)


def log_calls(report: Connection, path: str, seed: int) -> None:
    """Log kernel calls."""
    os.environ["POLYHAL_CACHE_DIR"] = path
    log = KernelCallLog(INFO)
    report.send(None)
    for number in count(seed):
        log.add(KernelCall(f"op {number}", (), (), {"text": "x" * 3000}), [f"program {number}"])
        report.send(number)


class _Observer:
    """Reports checkpoints."""

    def __init__(self, report: Connection) -> None:
        self._report = report

    def stepped(self, step: int) -> None:
        pass

    def logged(self, row: MetricsRow) -> None:
        pass

    def sampled(self, step: int, prompt: str, text: str) -> None:
        pass

    def saved(self, name: str, step: int) -> None:
        self._report.send(step)


def train(report: Connection, path: str, seed: int) -> None:
    """Train to the end, from the last checkpoint if there is one."""
    report.send(None)
    folder, device = RunFolder(Path(path)), Device("numpy")
    with folder.reserved():
        if folder.last.exists():
            session = training.resume(CORPUS, {}, [device], folder)
        else:
            session = training.start(CORPUS, OPTIONS, [device], folder)
            folder.claim(overwrite=True)
        session.run(_Observer(report), lambda: False)
