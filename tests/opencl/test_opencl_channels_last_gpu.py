"""Batch norm of rows of channels, and pooling of images with channels last, by the kernels for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import check, upload

from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS

WINDOWS: list[dict[str, Any]] = [
    {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)},
    {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)},
]


@pytest.fixture(scope="module")
def device(any_device: discovery.OpenCLDevice) -> Harness:
    """Return one device that compiles quickly: the source is the same on all devices."""
    return Harness(OpenCLBackend(any_device))


@pytest.fixture(autouse=True)
def as_a_gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the device look like a small GPU, on which splits share the rows."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, compute_units=2))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((300, 136), dtypes.bfloat16),
        pytest.param((1300, 72), dtypes.float32, marks=pytest.mark.slow),
        pytest.param((200, 3), dtypes.float16, marks=pytest.mark.slow),
        pytest.param((140, 10), dtypes.float64, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_batch_norm_of_rows(device: Any, rng: Any, shape: tuple[int, int], dtype: dtypes.DType) -> None:
    x, g = rng.uniform(-2, 2, shape) + 0.5, rng.uniform(-1, 1, shape)
    weight, bias = rng.uniform(0.5, 1.5, shape[1]), rng.uniform(-1, 1, shape[1])
    wide = np.float64 if dtype is dtypes.float64 else np.float32
    exact = x.astype(dtype.numpy).astype(np.float64)
    saved = [exact.mean(0).astype(wide), exact.var(0).astype(wide)]
    kinds: tuple[tuple[str, list[Any]], ...] = (("_relu", [bias]), ("", []))
    for suffix, shift in kinds[: 1 if dtype is dtypes.bfloat16 else 2]:
        check(device, f"batch_norm{suffix}", [x, weight, bias], dtype, ulps=16, eps=1e-5)
        check(device, f"batch_norm{suffix}_grad", [g, x, weight, *shift, *saved], dtype, ulps=32, eps=1e-5)
    check(device, "batch_norm_add_relu", [x, g, weight, bias], dtype, ulps=16, eps=1e-5)
    if dtype is not dtypes.bfloat16:
        check(device, "batch_norm", [x[::2, 1:], None, None], dtype, ulps=16, eps=1e-5)


@pytest.mark.slow
def test_large_means_of_rows_do_not_cancel(device: Any, rng: Any) -> None:
    check(device, "batch_norm", [rng.uniform(-1, 1, (900, 16)) + 1000, None, None], ulps=4000, eps=1e-5)


@pytest.mark.parametrize(("channels", "dtype"), [(16, dtypes.bfloat16), (5, dtypes.float32)], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: str(w["kernel"]))
def test_pooling(device: Any, rng: Any, channels: int, dtype: dtypes.DType, window: dict[str, Any]) -> None:
    """Few distinct values, so that windows contain equal ones; a NaN is the maximum of its windows."""

    def last(array: Any) -> Any:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).astype(dtype.numpy).transpose(0, 3, 1, 2)

    x = rng.integers(-4, 5, (2, channels, 9, 7)).astype(np.float64)
    x[0, 1, 4, 3] = np.nan
    g = rng.integers(-9, 9, OPS["max_pool2d"].reference(x, **window, dilation=(1, 1)).shape).astype(np.float64)
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("max_pool2d", [x], {"dilation": (1, 1)}),
        ("max_pool2d_grad", [g, x], {"dilation": (1, 1)}),
        ("avg_pool2d", [x], {}),
        ("avg_pool2d_grad", [g], {"shape": x.shape}),
    ]
    for op, arrays, own in calls:
        refs = [upload(device, last(a)) for a in arrays]
        want = OPS[op].reference(*arrays, **window, **own)
        n, c, h, w = want.shape
        stored = device.empty(dtype, (n, h, w, c))
        out = device.view(stored, want.shape, (h * w * c, 1, w * c, c))
        bound = {**OPS[op].schema.params, **window, **own}
        launch = device.accepted(device.backend.lower(op, tuple(r.spec for r in refs), (out.spec,), bound))
        launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
        got = device.download(stored).astype(np.float64).transpose(0, 3, 1, 2)
        # Sums of integers and their quotients, which are rounded once.
        step = 2.0**-8 if dtype is dtypes.bfloat16 else 2.0**-22
        np.testing.assert_allclose(got, want, rtol=step, atol=step)
