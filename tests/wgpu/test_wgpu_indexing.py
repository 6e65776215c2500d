"""Gather and scatter of rows by native kernels, on tables of every size, including split tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness
from native_ops import check, run

from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.hal import dtypes


def _has(device: Any, *kinds: dtypes.DType) -> bool:
    return all(k in device.backend.capabilities.storage for k in kinds)


def _index_type(device: Any) -> type:
    return np.int64 if _has(device, dtypes.int64) else np.int32


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool_, dtypes.bfloat16, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("kind", [dtypes.int32, dtypes.int64, dtypes.uint8], ids=lambda d: d.name)
def test_embedding(device: Any, rng: Any, dtype: dtypes.DType, kind: dtypes.DType) -> None:
    if not _has(device, dtype, kind):
        pytest.skip("the device does not store these dtypes")
    for width in (1, 21, 64):
        table = rng.integers(0, 2, (37, width)).astype(dtype.numpy)
        outside = [37, 255 if kind.kind == "uint" else -1]
        index = np.array([[3, 0, 36], [36, *outside]], kind.numpy)
        (got,) = run(device, "embedding", [table, index])
        inside = (index >= 0) & (index < 37)
        expected = np.where(inside[..., None], table[np.clip(index, 0, 36)], np.zeros((), dtype.numpy))
        np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


def test_embedding_of_views(device: Any, rng: Any) -> None:
    table = rng.uniform(-1, 1, (40, 64))
    index = rng.integers(0, 20, 50).astype(np.int32)
    check(device, "embedding", [table[::2, ::2], index[::-1]], ulps=0)
    check(device, "embedding", [table[:20, 3:24], index[1::3]], ulps=0)
    check(device, "embedding", [rng.uniform(-1, 1, (30, 20)).T, index], ulps=0)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("position", [-1, 0, 3, 6])
def test_store_rows(device: Any, rng: Any, dtype: dtypes.DType, position: int) -> None:
    if not _has(device, dtype):
        pytest.skip("the device does not store this dtype")
    whole = rng.uniform(-1, 1, (2, 3, 7, 5)).astype(dtype.numpy)
    rows = rng.uniform(-1, 1, (2, 2, 3, 5)).astype(dtype.numpy).transpose(0, 2, 1, 3)
    (got,) = run(device, "store_rows", [whole, rows, position])
    for i in (0, 1):
        if 0 <= position + i < 7:
            whole[:, :, position + i] = rows[:, :, i]
    np.testing.assert_array_equal(got.astype(np.float32), whole.astype(np.float32))


def test_a_table_beyond_the_binding_size_is_split(found: discovery.WGPUAdapter, rng: Any) -> None:
    device = Harness(open_adapter(found, binding_limit=1 << 14))
    table, index = rng.uniform(-1, 1, (300, 32)), rng.integers(-3, 303, 500)
    check(device, "embedding", [table, index.astype(_index_type(device))], ulps=0)


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name
)
@pytest.mark.parametrize(
    ("rows", "width", "count"), [(9, 33, 200), (5, 1, 3000), (300, 64, 50), (4, 7, 1), (70, 384, 300)]
)
def test_scatter_rows(device: Any, rng: Any, dtype: dtypes.DType, rows: int, width: int, count: int) -> None:
    if not _has(device, dtype):
        pytest.skip("the device does not store this dtype")
    if device.backend.features.cpu and dtype.kind == "float" and dtype.itemsize < 4:
        pytest.skip("composed from sums in single precision")
    src = rng.integers(-9, 9, (count, width)).astype(dtype.numpy)
    index = rng.integers(-2, rows + 2, count).astype(_index_type(device))
    (got,) = run(device, "scatter_rows", [src, index], rows=rows)
    want = np.zeros((rows, width))
    inside = (index >= 0) & (index < rows)
    np.add.at(want, index[inside], src[inside].astype(np.float64))
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_more_indices_than_the_limit_of_loop_iterations(device: Any, rng: Any) -> None:
    """A software device ends every loop after 65535 iterations."""
    index = rng.integers(-9, 9, 70000).astype(np.int32)
    ones = np.ones((70000, 1), np.float32)
    inside = np.bincount(index[index >= 0], minlength=9).astype(np.float32)
    (got,) = run(device, "scatter_rows", [ones, index], rows=9)
    np.testing.assert_array_equal(got[:, 0], inside)
    (got,) = run(device, "scatter_along_axis", [ones[:, 0], index, None], axis=0, length=9)
    np.testing.assert_array_equal(got, inside + np.bincount(index[index < 0] + 9, minlength=9))


def test_scatter_add_keeps_existing_values(device: Any, rng: Any) -> None:
    for rows, count in ((9, 200), (300, 50)):
        start = rng.integers(-9, 9, (rows, 12)).astype(np.float32)
        src = rng.integers(-9, 9, (count, 12)).astype(np.float32)
        index = rng.integers(-2, rows + 2, count).astype(np.int32)
        out = device.upload(start)
        device.backend.scatter_add(device.upload(index), device.upload(src), out)
        inside = (index >= 0) & (index < rows)
        np.add.at(start, index[inside], src[inside])
        np.testing.assert_array_equal(device.download(out), start)


@pytest.mark.parametrize(
    ("shape", "axis", "length"), [((4, 50), 1, 70), ((60, 5), 0, 30), ((5000,), 0, 9), ((2, 3, 4), 1, 8)]
)
def test_along_an_axis(device: Any, rng: Any, shape: tuple[int, ...], axis: int, length: int) -> None:
    """Negative indices count from the end; the gradient accumulates for repeated indices."""
    index = rng.integers(-length, length, shape).astype(_index_type(device))
    whole = rng.integers(-9, 9, (*shape[:axis], length, *shape[axis + 1 :])).astype(np.float32)
    check(device, "take_along_axis", [whole, index], ulps=0, axis=axis)
    src = rng.integers(-9, 9, shape).astype(np.float32)
    check(device, "scatter_along_axis", [src, index, None], ulps=0, axis=axis, length=length)
    check(device, "scatter_along_axis", [src.T, index.T, None], ulps=0, axis=len(shape) - 1 - axis, length=length)
