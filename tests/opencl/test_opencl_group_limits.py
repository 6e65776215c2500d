"""Kernels that run in smaller groups than the device: drivers report it for each compiled kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from native_harness import as_gpu

from polyhal.hal import dtypes
from polyhal.hal.errors import KernelBuildError

_PARAMETER = cl.kernel_work_group_info.WORK_GROUP_SIZE


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count a driver's queries of each kernel's maximum group size. The answer for `gemm_tiles` is 64."""
    asked: Counter[str] = Counter()
    real = cl.Kernel.get_work_group_info

    def answer(kernel: cl.Kernel, parameter: int, device: cl.Device) -> Any:
        if parameter != _PARAMETER:
            return real(kernel, parameter, device)  # type: ignore[call-overload]
        asked[kernel.function_name] += 1
        return 64 if kernel.function_name == "gemm_tiles" else device.max_work_group_size

    monkeypatch.setattr(cl.Kernel, "get_work_group_info", answer)
    return asked


@pytest.fixture
def gpu(device: Any) -> Any:
    """Reopen the device, treated as a GPU, so that it has not built anything."""
    fresh = device.with_quirk()
    runtime = fresh.backend.runtime
    runtime.features = as_gpu(runtime.features, group_size=min(64, runtime.features.max_group_size))
    return fresh


def test_a_product_whose_tiles_cannot_run_uses_a_fallback(gpu: Any, asked: Counter[str], rng: Any) -> None:
    """The core method has no op-level fallback."""
    if gpu.backend.features.max_group_size < 256:
        pytest.skip("the device has no groups of 256 work-items, so it uses the other kernel anyway")
    x, y = (rng.uniform(-1, 1, (1, 300, 300)).astype(np.float64) for _ in range(2))
    out = gpu.empty(dtypes.float64, (1, 300, 300))
    with pytest.warns(RuntimeWarning, match=r"gemm_tiles.*groups of at most 64 work-items, and this launch has 256"):
        gpu.backend.matmul(gpu.upload(x), gpu.upload(y), out)
    # Each product of 300 terms has 300 roundings, of sums below 300.
    np.testing.assert_allclose(gpu.download(out), x @ y, rtol=0, atol=300 * 300 * np.finfo(np.float64).eps)
    assert asked["gemm_tiles"] == asked["gemm_strided"] == 1


def test_each_kernel_is_queried_once(gpu: Any, asked: Counter[str], rng: Any) -> None:
    for columns in (900, 1000):
        x = rng.uniform(-1, 1, (5, columns)).astype(np.float32)
        out = gpu.empty(dtypes.float32, (5,))
        for _ in range(2):
            gpu.backend.reduce("max", gpu.upload(x), out)
        np.testing.assert_array_equal(gpu.download(out), x.max(1))
    assert asked
    assert set(asked.values()) == {1}


def test_without_another_kernel_it_is_an_error_with_both_numbers(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cl.Kernel, "get_work_group_info", lambda *_: 2)
    specs = [gpu.empty(dtypes.float32, (64, 100)).spec] * 2
    with pytest.raises(KernelBuildError, match=r"rowwise_softmax.*at most 2 work-items, and this launch has \d+"):
        gpu.backend.lower("softmax", tuple(specs[:1]), tuple(specs[1:]), {"axis": 1})


def test_a_driver_that_reports_too_small_groups_is_ignored(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """NVIDIA's driver reports 256 for kernels that run in groups of 1024."""
    runtime = gpu.backend.runtime
    quirks = replace(runtime.features.quirks, group_limit_is_advice=True)
    runtime.features = replace(runtime.features, quirks=quirks)
    monkeypatch.setattr(cl.Kernel, "get_work_group_info", lambda *_: 1)
    x = rng.uniform(-1, 1, (5, 900)).astype(np.float32)
    out = gpu.empty(dtypes.float32, (5,))
    gpu.backend.reduce("max", gpu.upload(x), out)
    np.testing.assert_array_equal(gpu.download(out), x.max(1))
