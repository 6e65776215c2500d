"""Rows gathered and scattered, and plain matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
