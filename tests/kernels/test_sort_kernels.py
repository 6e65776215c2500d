"""Sorting and top-k along any axis, bitwise equal to NumPy's stable order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import run

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS

pytestmark = pytest.mark.kernels_of("sort_pairs", "topk")

CASES = [((7,), 0), ((33, 70), 1), ((70, 3), 0), ((2, 50, 3), 1), ((2, 5000), 1)]


def _draw(rng: Any, shape: tuple[int, ...], dtype: dtypes.DType) -> np.ndarray:
    """Draw few distinct values, so that many are equal; floats include zeros of both signs, infinities and NaN."""
    if dtype.kind == "float":
        x = rng.integers(-5, 5, shape).astype(np.float64)
        flat = x.reshape(-1)
        flat[::5], flat[1::7], flat[2::11], flat[3::13] = np.nan, -0.0, np.inf, -np.inf
        return x.astype(dtype.numpy)
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype.numpy)
    return rng.choice(np.array([info.min, 0, 1, info.max], dtype.numpy), shape)


def _same(device: Any, op: str, x: np.ndarray, **params: Any) -> None:
    for got, want in zip(run(device, op, [x], **params), OPS[op].reference(x, **params), strict=True):
        assert got.tobytes() == np.ascontiguousarray(want).astype(got.dtype).tobytes()


@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64], ids=lambda d: d.name)
def test_order_is_stable(device: Any, rng: Any, shape: tuple[int, ...], axis: int, dtype: dtypes.DType) -> None:
    x = _draw(rng, shape, dtype)
    for descending in (False, True):
        _same(device, "sort_pairs", x, axis=axis, descending=descending)


@pytest.mark.parametrize(
    "dtype",
    [dtypes.bool_, dtypes.int8, dtypes.uint16, dtypes.uint64, dtypes.float16, dtypes.float64],
    ids=lambda d: d.name,
)
def test_other_dtypes(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    _same(device, "sort_pairs", _draw(rng, (3, 100), dtype), axis=1, descending=False)


@pytest.mark.parametrize("k", [1, 9, 70])
def test_largest_few(device: Any, rng: Any, k: int) -> None:
    x = _draw(rng, (4, 3000), dtypes.float32)
    for largest in (False, True):
        _same(device, "topk", x, k=k, axis=1, largest=largest)
    _same(device, "topk", x[::2, 5:500:3].T, k=k, axis=0, largest=True)
