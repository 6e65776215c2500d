"""The short form of the campaign of load; `python -m benchmarks.reliability --only load` is the long one."""

from __future__ import annotations

import os

import pytest

from benchmarks.reliability.load import exit_with_work, fork, load
from benchmarks.reliability.machine_devices import SIMULATED, names

pytestmark = pytest.mark.slow


def test_load_leaves_nothing_behind() -> None:
    result = load(("numpy", SIMULATED), launches=4_000, tensors=500, exits=1, forks=0)
    assert not result.findings, "\n".join(result.findings)
    assert result.leaks == 0
    assert result.launches == 4_000
    assert result.by_device["sim:teaching,memory=100MiB"] == {"bytes in large tensors": int(0.8 * 100 * 2**20)}


@pytest.mark.parametrize("backend", ["opencl", "wgpu"])
def test_processes_end_while_their_device_works(backend: str) -> None:
    """Threads of the program and callbacks of the driver are still there when Python ends."""
    for name in names(backend)[:1]:
        for kind in ("reads", "a thread"):
            for _ in range(2):
                assert exit_with_work(name, kind) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.parametrize("name", ["numpy", SIMULATED, *names("opencl"), *names("wgpu")[:1]])
def test_forked_children_end(name: str) -> None:
    assert fork(name, quickly=False) == []
