"""GPUs whose local memory is ordinary memory: products and convolutions read their operands where they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check, lower, upload

from polyhal.hal.protocol import Declined

CONVOLUTION = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.fixture(params=[True, False], ids=["on the chip", "in memory"])
def gpu(request: pytest.FixtureRequest, device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device, taken for a GPU with local memory on the chip or not; `launched` has the kernels of the test."""
    runtime = device.backend.runtime
    features = replace(as_gpu(runtime.features), local_memory_is_real=request.param)
    monkeypatch.setattr(runtime, "features", features)
    launch = runtime.launch
    monkeypatch.setattr(device, "launched", set(), raising=False)

    def noted(source: str, *args: Any, **kwargs: Any) -> Any:
        device.launched.add(source)
        return launch(source, *args, **kwargs)

    monkeypatch.setattr(runtime, "launch", noted)
    return device


@pytest.mark.parametrize(("rows", "terms", "columns"), [(70, 90, 50), (17, 3000, 40), (300, 33, 260)])
def test_products(gpu: Any, rng: Any, rows: int, terms: int, columns: int) -> None:
    # Sums of `terms` products below 1: an ulp per rounding, of which fewer than `terms` stand in a chain.
    check(gpu, "matmul", [rng.uniform(-1, 1, (rows, terms)), rng.uniform(-1, 1, (terms, columns))], ulps=terms)
    staged = {"gemm/tiles", "gemm/sliced_k"} & gpu.launched
    assert bool(staged) == gpu.backend.features.local_memory_is_real
    assert staged or "gemm/strided" in gpu.launched


def test_row_sums_on_the_way_need_staging(gpu: Any, rng: Any) -> None:
    """Elsewhere the planner takes a product and a sum."""
    refs = [upload(gpu, rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((130, 50), (130, 33))]
    launch, _ = lower(gpu, "linear_weight_grad", refs, {})
    assert isinstance(launch, Declined) != gpu.backend.features.local_memory_is_real


def test_convolutions(gpu: Any, rng: Any) -> None:
    x, weight = rng.uniform(-1, 1, (3, 5, 9, 8)), rng.uniform(-1, 1, (12, 5, 3, 3))
    slope = rng.uniform(-1, 1, (3, 12, 9, 8))
    check(gpu, "conv2d", [x, weight, rng.uniform(-1, 1, 12)], ulps=45, **CONVOLUTION)
    check(gpu, "conv2d_weight_grad", [slope, x], ulps=216, kernel=(3, 3), **CONVOLUTION)
    expected = {"conv/direct", "conv/direct_weight_grad"}
    if gpu.backend.features.local_memory_is_real:
        expected = {"conv/implicit_gemm", "conv/implicit_gemm_weight_grad"}
    assert {k for k in gpu.launched if k.startswith(("conv/direct", "conv/implicit"))} - {"conv/implicit_gemm_pack"} == expected
