"""Groups on devices with waves of 64: none is smaller if it has enough work."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from native_harness import as_gpu
from native_ops import check, run
from test_opencl_profiles import record

from polyhal.backends.opencl.capabilities import features
from polyhal.backends.opencl_c.lowering.conv import local_images
from polyhal.backends.opencl_c.lowering.support.wave import filled
from polyhal.hal.capabilities import DeviceType


class Older:
    """An AMD device whose driver does not support queries of OpenCL 3.0."""

    def __init__(self, record: Any, width: int) -> None:
        self._record, self.wavefront_width_amd = record, width

    @property
    def preferred_work_group_size_multiple(self) -> int:
        raise cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)


@pytest.mark.parametrize(("told", "wave"), [(64, 64), (32, 32), (16, 16), (1, 1), (1 << 20, 256)])
def test_a_wave_is_the_drivers_preferred_multiple_within_its_groups(told: int, wave: int) -> None:
    device, kind = record("amd")
    device.preferred_work_group_size_multiple = told
    assert features(device, kind).wave == wave
    assert features(Older(record("amd")[0], told), kind).wave == wave
    assert features(device, DeviceType.CPU).wave == 1
    assert features(record("amd")[0], kind).wave == 1


def test_groups_for_usual_waves_stay(device: Any) -> None:
    found = device.backend.features
    assert [filled(replace(found, wave=w), 16) for w in (1, 16, 32, 64)] == [16, 16, 16, 64]
    assert filled(replace(found, wave=64), 128) == 128


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU with waves of 64; `groups` has the group sizes of launches, by kernel."""
    runtime = device.backend.runtime
    group = min(256, runtime.features.max_group_size)
    monkeypatch.setattr(runtime, "features", replace(as_gpu(runtime.features), group_size=group, wave=64))
    monkeypatch.setattr(device, "groups", {}, raising=False)
    launch = runtime.launch

    def noted(source: str, *args: Any, **kwargs: Any) -> Any:
        device.groups.setdefault(source, []).append(math.prod(args[3]))
        return launch(source, *args, **kwargs)

    monkeypatch.setattr(runtime, "launch", noted)
    return device


@pytest.mark.parametrize(("columns", "multiple"), [(72, 32), (300, 64), (1000, 64)])
def test_rows(gpu: Any, rng: Any, columns: int, multiple: int) -> None:
    """With vectors of four elements, rows of 72 do not fill 64 work-items."""
    check(gpu, "softmax", [rng.uniform(-1, 1, (300, columns))], axis=1)
    assert {group % multiple for group in gpu.groups["rowwise/softmax"]} == {0}


def test_products_from_memory(gpu: Any, rng: Any) -> None:
    check(gpu, "matmul", [rng.uniform(-1, 1, (5, 20)), rng.uniform(-1, 1, (20, 130))], ulps=20)
    assert gpu.groups["gemm/strided"] == [64]


def test_batch_norm_of_short_planes(gpu: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (6, 5, 9, 8)).astype(np.float32)
    mean, variance = x.astype(np.float64).mean((0, 2, 3)), x.astype(np.float64).var((0, 2, 3))
    weight, bias = rng.uniform(-1, 1, 5).astype(np.float32), rng.uniform(-1, 1, 5).astype(np.float32)
    normed = run(gpu, "batch_norm", [x, weight, bias], eps=1e-5)[0]
    shape = (1, 5, 1, 1)
    exact = (x - mean.reshape(shape)) / np.sqrt(variance + 1e-5).reshape(shape) * weight.reshape(shape) + bias.reshape(
        shape
    )
    # A few roundings of numbers below 8: the inverse standard deviation of uniform numbers is 1.7.
    np.testing.assert_allclose(normed, exact, rtol=0, atol=64 * np.finfo(np.float32).eps)
    assert min(min(g) for g in gpu.groups.values()) >= 64


def test_packed_weights_of_convolutions(gpu: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_images, "_MULTIPLY_ADDS", 0)
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    check(gpu, "conv2d", [rng.uniform(-1, 1, (2, 5, 9, 8)), rng.uniform(-1, 1, (12, 5, 3, 3)), None], ulps=45, **params)
    assert gpu.groups["conv/implicit_gemm_pack"] == [64]
