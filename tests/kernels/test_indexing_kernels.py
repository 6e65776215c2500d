"""Rows and elements gathered and scattered, on tables of every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, run

from polyhal.hal import dtypes

TABLES = [dtypes.float32, dtypes.bool_, dtypes.bfloat16, dtypes.int64]


def _gathered(table: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the rows of a table, and zeros for indices outside of it, in float32."""
    inside = (index >= 0) & (index < len(table))
    rows = table[np.clip(index, 0, len(table) - 1)]
    return np.where(inside[..., None], rows, np.zeros((), table.dtype)).astype(np.float32)


@pytest.mark.parametrize("dtype", TABLES, ids=lambda d: d.name)
@pytest.mark.parametrize("kind", [dtypes.int32, dtypes.int64, dtypes.uint8], ids=lambda d: d.name)
def test_embedding(device: Any, rng: Any, dtype: dtypes.DType, kind: dtypes.DType) -> None:
    if not device.stores(kind):
        pytest.skip(f"the device does not store {kind.name}")
    for width in (1, 21, 64):
        table = rng.integers(0, 2, (37, width)).astype(dtype.numpy)
        index = np.array([[3, 0, 36], [36, 37, 255 if kind.kind == "uint" else -1]], kind.numpy)
        (got,) = run(device, "embedding", [table, index])
        np.testing.assert_array_equal(got.astype(np.float32), _gathered(table, index))


def test_embedding_of_views(device: Any, rng: Any) -> None:
    table = rng.uniform(-1, 1, (40, 64))
    index = rng.integers(0, 20, 50).astype(np.int32)
    check(device, "embedding", [table[::2, ::2], index[::-1]], ulps=0)
    check(device, "embedding", [table[:20, 3:24], index[1::3]], ulps=0)
    check(device, "embedding", [rng.uniform(-1, 1, (30, 20)).T, index], ulps=0)


@pytest.mark.parametrize("dtype", TABLES, ids=lambda d: d.name)
@pytest.mark.parametrize("kind", [dtypes.int32, dtypes.int64], ids=lambda d: d.name)
def test_contract_gather(device: Any, rng: Any, dtype: dtypes.DType, kind: dtypes.DType) -> None:
    if not device.stores(kind):
        pytest.skip(f"the device does not store {kind.name}")
    for width in (1, 21, 64):
        x = rng.integers(0, 2, (37, width)).astype(dtype.numpy)
        index = np.array([3, 0, 36, -1, 37, 36], kind.numpy)
        out = device.empty(dtype, (6, width))
        device.backend.gather(device.upload(index), device.upload(x), out)
        np.testing.assert_array_equal(device.download(out).astype(np.float32), _gathered(x, index))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda d: d.name)
def test_store_rows(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    whole = rng.uniform(-1, 1, (4, 3, 7, 5)).astype(dtype.numpy)
    rows = rng.uniform(-1, 1, (4, 2, 3, 5)).astype(dtype.numpy).transpose(0, 2, 1, 3)
    positions = np.array([-1, 0, 3, 6], np.int32)
    (got,) = run(device, "store_rows", [whole, rows, positions])
    for b, position in enumerate(positions):
        for i in (0, 1):
            if 0 <= position + i < 7:
                whole[b, :, position + i] = rows[b, :, i]
    np.testing.assert_array_equal(got.astype(np.float32), whole.astype(np.float32))


SCATTERED = [(9, 33, 200), (5, 1, 3000), (300, 64, 50), (4, 7, 1), (70, 384, 300)]


@pytest.mark.parametrize(
    "dtype",
    [dtypes.float32, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16, dtypes.float64],
    ids=lambda d: d.name,
)
@pytest.mark.parametrize(("rows", "width", "count"), SCATTERED)
def test_scatter_rows(device: Any, rng: Any, dtype: dtypes.DType, rows: int, width: int, count: int) -> None:
    if device.uses_cpu_kernels and dtype.kind == "float" and dtype.itemsize < 4:
        pytest.skip("composed from sums in single precision")
    src = rng.integers(-9, 9, (count, width)).astype(dtype.numpy)
    index = rng.integers(-2, rows + 2, count).astype(device.index_dtype)
    (got,) = run(device, "scatter_rows", [src, index], rows=rows)
    want = np.zeros((rows, width))
    inside = (index >= 0) & (index < rows)
    np.add.at(want, index[inside], src[inside].astype(np.float64))
    np.testing.assert_array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize(("rows", "width", "count"), SCATTERED)
def test_rows_that_no_index_names_keep_their_bits(device: Any, rng: Any, rows: int, width: int, count: int) -> None:
    table = np.full((rows, width), -0.0, np.float32)
    src = rng.integers(1, 9, (count, width)).astype(np.float32)
    index = rng.integers(-1, rows // 2, count).astype(device.index_dtype)
    (got,) = run(device, "add_rows", [table, index, src])
    want = table.copy()
    np.add.at(want, index[index >= 0], src[index >= 0])
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@pytest.mark.parametrize(("shape", "axis"), [((3000, 2), 0), ((40, 30), 1), ((7,), 0)])
def test_elements_that_no_index_names_keep_their_bits(device: Any, rng: Any, shape: tuple[int, ...], axis: int) -> None:
    base = np.full([9 if k == axis else n for k, n in enumerate(shape)], -0.0, np.float32)
    src = rng.integers(1, 9, shape).astype(np.float32)
    index = rng.integers(0, 5, shape).astype(device.index_dtype)
    (got,) = run(device, "scatter_along_axis", [src, index, base], axis=axis, length=9)
    want = base.copy()
    places = np.indices(shape)
    places[axis] = index
    np.add.at(want, tuple(places), src)
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.int64, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize(("rows", "width", "count"), [*SCATTERED[:4], (9, 12, 200), (300, 12, 50)])
def test_contract_scatter_add(device: Any, rng: Any, dtype: dtypes.DType, rows: int, width: int, count: int) -> None:
    """Sums are added to existing values."""
    src = rng.integers(-9, 9, (count, width)).astype(dtype.numpy)
    index = rng.integers(-2, rows + 2, count).astype(device.index_dtype)
    start = rng.integers(-9, 9, (rows, width)).astype(dtype.numpy)
    out = device.upload(start)
    device.backend.scatter_add(device.upload(index), device.upload(src), out)
    inside = (index >= 0) & (index < rows)
    np.add.at(start, index[inside], src[inside])
    np.testing.assert_array_equal(device.download(out), start)


def test_more_indices_than_a_software_device_has_iterations_of_a_loop(device: Any, rng: Any) -> None:
    """Such a device ends every loop after 65535 iterations."""
    index = rng.integers(-9, 9, 70000).astype(np.int32)
    ones = np.ones((70000, 1), np.float32)
    inside = np.bincount(index[index >= 0], minlength=9).astype(np.float32)
    (got,) = run(device, "scatter_rows", [ones, index], rows=9)
    np.testing.assert_array_equal(got[:, 0], inside)
    (got,) = run(device, "scatter_along_axis", [ones[:, 0], index, None], axis=0, length=9)
    np.testing.assert_array_equal(got, inside + np.bincount(index[index < 0] + 9, minlength=9))


@pytest.mark.parametrize(
    ("shape", "axis", "length"),
    [((4, 50), 1, 70), ((60, 5), 0, 30), ((5000,), 0, 9), ((2, 3, 4), 1, 8), ((4000, 3), 0, 7), ((2, 900, 2), 1, 7)],
)
def test_along_an_axis(device: Any, rng: Any, shape: tuple[int, ...], axis: int, length: int) -> None:
    """Negative indices count from the end; the gradient accumulates for repeated indices.

    CPUs add a range of a long axis per work-item; integers show every missing term exactly.
    """
    index = rng.integers(-length, length, shape).astype(device.index_dtype)
    whole = rng.integers(-9, 9, (*shape[:axis], length, *shape[axis + 1 :])).astype(np.float32)
    check(device, "take_along_axis", [whole, index], ulps=0, axis=axis)
    src = rng.integers(-9, 9, shape).astype(np.float32)
    check(device, "scatter_along_axis", [src, index, None], ulps=0, axis=axis, length=length)
    check(device, "scatter_along_axis", [src.T, index.T, None], ulps=0, axis=len(shape) - 1 - axis, length=length)
