"""Fourier transforms by the kernels of GPUs, on any device with local memory: passes, exchanges, and rows of partial groups."""

from __future__ import annotations

from typing import Any

import pytest
from fourier_bounds import compare, draw
from native_harness import as_gpu


def treated_as_gpu(device: Any, monkeypatch: pytest.MonkeyPatch, local_memory: int, group: int) -> None:
    runtime = device.backend.runtime
    facts = {"static_local_memory": local_memory, "max_group_size": min(runtime.features.max_group_size, group)}
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, **facts))


@pytest.mark.parametrize(
    ("local_memory", "n"), [(8192, 60), (8192, 135), (1024, 128), (1024, 37), (4096, 2048)], ids=str
)
def test_rows(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, local_memory: int, n: int) -> None:
    """Little local memory makes transforms take several passes, and parts of numbers take turns in it."""
    treated_as_gpu(device, monkeypatch, local_memory, 64)
    x = [draw(rng, 3, n), draw(rng, 3, n)]
    compare(device, "fourier", x, axes=(1,), inverse=False, scale=1.0)
    compare(device, "real_fourier", x[:1], axes=(1,), scale=1.0)
    compare(device, "half_fourier", x, axes=(1,), length=2 * (n - 1), scale=0.5)


def test_columns_and_planes(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    treated_as_gpu(device, monkeypatch, 8192, 64)
    x = [draw(rng, 2, 30, 21), draw(rng, 2, 30, 21)]
    compare(device, "fourier", x, axes=(1,), inverse=True, scale=1.0)
    compare(device, "real_fourier", x[:1], axes=(2, 1), scale=1.0)
    compare(device, "half_fourier", x, axes=(0, 1), length=59, scale=1.0)
