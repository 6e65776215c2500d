"""Planes resampled along both axes at once, by the kernels of CPUs and of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_ops import check


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("taps", [(1, 1), (2, 2), (4, 3)])
@pytest.mark.parametrize(("shape", "result"), [((2, 3, 9, 8), (20, 16)), ((5, 12), (3, 301)), ((2, 7, 40), (150, 5))])
def test_planes(
    device: Any,
    rng: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    taps: tuple[int, int],
    shape: tuple[int, ...],
    result: tuple[int, int],
) -> None:
    """Lines are sorted, as in real resampling, or in any other order."""
    runtime = device.backend.runtime
    if runtime.features.cpu:
        monkeypatch.setattr(runtime, "features", replace(runtime.features, cpu=kind == "cpu"))
    elif kind == "cpu":
        pytest.skip("kernels for CPUs keep lines in private memory")
    x = rng.uniform(-1, 1, shape)
    for order in (np.sort, np.asarray):
        bands = []
        for length, rows, count in zip(shape[-2:], result, taps, strict=True):
            starts = order(rng.integers(0, length - count + 1, rows)).astype(np.int32)
            bands += [starts, rng.uniform(-1, 1, (rows, count))]
        check(device, "banded_planes", [x, *bands], ulps=16)
