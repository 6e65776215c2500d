"""Rows and elements gathered and scattered, and plain matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check

from polyhal.hal import dtypes


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool_, dtypes.bfloat16, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather(device: Any, rng: Any, dtype: dtypes.DType, kind: type) -> None:
    for width in (1, 21, 64):
        x = rng.integers(0, 2, (37, width)).astype(dtype.numpy)
        index = np.array([3, 0, 36, -1, 37, 36], kind)
        out = device.empty(dtype, (6, width))
        device.backend.gather(device.upload(index), device.upload(x), out)
        expected = np.where(((index >= 0) & (index < 37))[:, None], x[np.clip(index, 0, 36)], np.zeros((), dtype.numpy))
        np.testing.assert_array_equal(device.download(out).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.int64, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize(("rows", "width", "count"), [(9, 33, 200), (5, 1, 1000), (300, 64, 50), (4, 7, 1)])
def test_scatter_add(device: Any, rng: Any, dtype: dtypes.DType, rows: int, width: int, count: int) -> None:
    src = rng.integers(-9, 9, (count, width)).astype(dtype.numpy)
    index = rng.integers(-2, rows + 2, count)
    start = rng.integers(-9, 9, (rows, width)).astype(dtype.numpy)
    out = device.upload(start)
    device.backend.scatter_add(device.upload(index), device.upload(src), out)
    inside = (index >= 0) & (index < rows)
    np.add.at(start, index[inside], src[inside])
    np.testing.assert_array_equal(device.download(out), start)


@pytest.mark.parametrize(("b", "m", "n", "k"), [(1, 1, 1, 1), (2, 5, 9, 7), (1, 33, 17, 64), (3, 16, 40, 1)])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int32], ids=lambda d: d.name)
def test_matmul(device: Any, rng: Any, b: int, m: int, n: int, k: int, dtype: dtypes.DType) -> None:
    x, y = rng.integers(-4, 5, (b, m, k)).astype(dtype.numpy), rng.integers(-4, 5, (b, k, n)).astype(dtype.numpy)
    out = device.empty(dtype, (b, m, n))
    device.backend.matmul(device.upload(x), device.upload(y), out)
    expected = (x.astype(np.float64) @ y.astype(np.float64)).astype(dtype.numpy)
    np.testing.assert_array_equal(device.download(out), expected)


@pytest.mark.parametrize("shape", [(4000, 3), (2, 900, 2), (5000,)])
def test_many_sums_along_a_long_axis(device: Any, rng: Any, shape: tuple[int, ...]) -> None:
    """CPUs add a range of the axis per work-item; integers show every missing term exactly."""
    axis, length = len(shape) // 2 if len(shape) == 3 else 0, 7
    src = rng.integers(-9, 9, shape).astype(np.float32)
    index = rng.integers(-length, length, shape)
    check(device, "scatter_along_axis", [src, index, None], ulps=0, axis=axis, length=length)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("bags", "open_end"), [("length", False), ("starts", False), ("starts", True)])
def test_rows_added_by_bags_on_gpus(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, bags: str, open_end: bool, scaled: bool
) -> None:
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features))
    starts = None if bags == "length" else np.array([0, 1, 1, 8, 10])
    count = 4 + (starts is not None and open_end)
    index = rng.integers(-1, 7, 12)
    scales = rng.integers(1, 3, 12).astype(np.float32) if scaled else None
    params = {"rows": 6, "length": 3 if starts is None else 0, "open_end": open_end}
    check(
        device,
        "scatter_bags",
        [rng.integers(-9, 9, (count, 8)).astype(np.float32), index, starts, scales],
        ulps=0,
        **params,
    )
