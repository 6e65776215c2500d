"""Backends made up for tests of finding and choosing devices: NumPy in disguise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.discovery.benchmark_cache import RunBenchmark
from polyhal.hal.discovery.registry import Registry
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.protocol import API_VERSION


def info(name: str, kind: DeviceType, memory: int = 1 << 30, selector: str = "0", **rest: Any) -> DeviceInfo:
    """A device; `fake` says of which backend."""
    rest.setdefault("id", f"fake/{name}")
    return DeviceInfo("", name, kind, memory, rest.pop("driver", "1.0"), selector=selector, **rest)


def fake(name: str, *devices: DeviceInfo, priority: int = 0, refuse: Sequence[str] = (), **rest: Any) -> BackendSpec:
    """A backend with these devices; those whose selectors are in `refuse` cannot be opened."""
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
    """A registry of just these."""
    found = Registry([], run_benchmark=run_benchmark)
    for spec in specs:
        found.add(spec)
    return found
