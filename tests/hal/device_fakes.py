"""Fake backends for tests of finding and choosing devices, based on NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.protocol import API_VERSION
from polyhal.hal.system.discovery.benchmark import BenchmarkTimes
from polyhal.hal.system.discovery.benchmark_cache import RunBenchmark
from polyhal.hal.system.discovery.registry import Registry


def info(name: str, kind: DeviceType, memory: int = 1 << 30, selector: str = "0", **rest: Any) -> DeviceInfo:
    """Return the description of a device; `fake` sets its backend."""
    rest.setdefault("id", f"fake/{name}")
    return DeviceInfo("", name, kind, memory, rest.pop("driver", "1.0"), selector=selector, **rest)


def fake(name: str, *devices: DeviceInfo, priority: int = 0, refuse: Sequence[str] = (), **rest: Any) -> BackendSpec:
    """Return a backend with these devices; devices with selectors in `refuse` cannot be opened."""
    listed = [replace(d, backend=name) for d in devices]

    def create(selector: str) -> NumpyBackend:
        if selector in refuse:
            raise RuntimeError(f"the driver refused device {selector}")
        found = next((d for d in listed if d.selector == selector), None)
        if found is None:
            raise ValueError(f"no device {selector}")
        return NumpyBackend(found)

    return BackendSpec(name, probe=lambda: listed, create=create, priority=priority, api_version=API_VERSION, **rest)


def with_backends(*specs: BackendSpec, run_benchmark: RunBenchmark | None = None) -> Registry:
    """Return a registry of only these backends."""
    found = Registry([], run_benchmark=run_benchmark)
    for spec in specs:
        found.add(spec)
    return found


GPU, IGPU, ACCELERATOR, CPU = DeviceType.GPU, DeviceType.INTEGRATED_GPU, DeviceType.ACCELERATOR, DeviceType.CPU

CPUS = {
    "intel": fake("intel", info("Xeon", CPU), priority=50),
    "pocl": fake("pocl", info("pthread-Xeon", CPU), priority=50),
    "numpy": fake("numpy", info("NumPy on x86_64", CPU, selector=""), priority=-100),
    "wgpu": fake("wgpu", info("llvmpipe (LLVM 15)", CPU), priority=40),
}
CARDS = {
    "card": fake("card", info("Big card", GPU)),
    "integrated": fake("integrated", info("Small chip", IGPU)),
    "accelerator": fake("accelerator", info("Odd board", ACCELERATOR)),
}
ALL = CPUS | CARDS


class Clock:
    """A benchmark that counts its runs and returns the given seconds."""

    def __init__(self, **seconds: float | Exception) -> None:
        self.seconds = seconds
        self.asked: list[str] = []
        """Device of each run: two devices run again if one would displace the other."""

    @property
    def measured(self) -> list[str]:
        """Return the devices in the order of their first runs."""
        return list(dict.fromkeys(self.asked))

    def __call__(self, candidate: Candidate, limit: float) -> BenchmarkTimes:
        assert limit > 0
        self.asked.append(candidate.name)
        found = self.seconds.get(candidate.backend.name, 1.0)
        if isinstance(found, Exception):
            raise found
        return BenchmarkTimes(found, 10.0, 512)


def names_of(candidates: list[Candidate]) -> list[str]:
    """Return the devices' names, in order."""
    return [c.name for c in candidates]
