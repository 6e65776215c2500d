"""Reductions over any axes and layouts, in one pass and two, against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from native_ops import run

from polyhal.hal import dtypes

CASES = [
    ((7,), (0,)), ((1,), (0,)), ((33, 70), (1,)), ((33, 70), (0,)), ((33, 70), (0, 1)), ((4, 3000), (1,)),
    ((3000, 4), (0,)), ((3, 5, 7), (1,)), ((3, 5, 7), (0, 2)), ((3, 5, 7, 2), (0, 2)), ((3, 4, 5, 6), (1, 3)),
    ((2, 3, 4, 5, 6), (0, 2, 4)), ((100_003,), (0,)), ((2, 50_000), (1,)), ((50_000, 18), (0,)), ((9000, 5), (1,)),
    ((8, 16, 9, 9), (0, 2, 3)), ((6, 16, 64, 4), (0, 2, 3)), ((700, 300), (0,)),
]  # fmt: skip


def _reduce(device: Any, op: str, x: Any, axes: tuple[int, ...]) -> np.ndarray:
    return run(device, op, [x], axis=axes, keepdims=False)[0]


def _check_sum(device: Any, x: np.ndarray, axes: tuple[int, ...], op: str = "sum") -> None:
    exact, size = x.astype(np.float64).sum(axes), np.abs(x.astype(np.float64)).sum(axes)
    n = math.prod(x.shape[a] for a in axes)
    # Blocked and split sums: a chain has fewer than 64 + sqrt(n) roundings.
    bound = np.finfo(np.float32).eps * (64 + math.sqrt(n)) * size + 1e-30
    got = _reduce(device, op, x, axes)
    divisor = n if op == "mean" else 1
    assert np.all(np.abs(got - exact / divisor) <= bound / divisor)
    np.testing.assert_array_equal(_reduce(device, op, x, axes), got)


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_floats(device: Any, rng: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = (rng.standard_normal(shape) + 0.5).astype(np.float32)
    _check_sum(device, x, axes)
    _check_sum(device, x, axes, "mean")
    for poison in (False, True):
        if poison:
            x.reshape(-1)[[0, x.size // 2]] = np.nan
        np.testing.assert_array_equal(_reduce(device, "max", x, axes), x.max(axes))
        np.testing.assert_array_equal(_reduce(device, "min", x, axes), x.min(axes))


INTEGERS = [
    dtypes.int8,
    dtypes.int32,
    dtypes.uint8,
    dtypes.uint32,
    dtypes.uint64,
    dtypes.int64,
    dtypes.bool_,
]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integers(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    info = np.iinfo(dtype.numpy) if dtype.kind != "bool" else None
    x = rng.integers(info.min, info.max, (37, 50), dtype.numpy) if info else rng.integers(0, 2, (37, 50)).astype(bool)
    wide = np.uint64 if dtype.kind == "uint" else np.int64
    for axes in ((0,), (1,)):
        if device.stores(dtypes.int64):
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(_reduce(device, "sum", x, axes), x.sum(axes, dtype=wide))
        np.testing.assert_array_equal(_reduce(device, "max", x, axes), x.max(axes))
        np.testing.assert_array_equal(_reduce(device, "min", x, axes), x.min(axes))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
def test_other_floats(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    """Sums of half precision are computed in single precision."""
    x = rng.standard_normal((9, 700)).astype(dtype.numpy)
    exact = x.astype(np.float64).sum(1)
    actual = _reduce(device, "sum", x, (1,)).astype(np.float64)
    eps = float(dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(actual, exact, rtol=eps, atol=1e-4 if dtype is not dtypes.float64 else 1e-12)
    for axis in (0, 1):
        np.testing.assert_array_equal(_reduce(device, "max", x, (axis,)), x.max(axis))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_means_of_two_passes(device: Any, rng: Any, axes: tuple[int, ...]) -> None:
    x = rng.standard_normal((70, 1300)).astype(np.float32)
    _check_sum(device, x, axes, "mean")
    x[3, 5] = np.nan
    np.testing.assert_array_equal(_reduce(device, "min", x, axes), x.min(axes))


def test_any_all_and_prod(device: Any, rng: Any) -> None:
    x = np.where(rng.random((40, 60)) < 0.02, np.nan, 0).astype(np.float32)
    for op, reference in (("any", np.any), ("all", np.all)):
        for axes in ((0,), (1,), (0, 1)):
            np.testing.assert_array_equal(_reduce(device, op, x, axes), reference(x, axes), err_msg=op)
    y = rng.uniform(0.8, 1.2, (5, 300)).astype(np.float32)
    np.testing.assert_allclose(_reduce(device, "prod", y, (1,)), np.prod(y.astype(np.float64), 1), rtol=5e-5)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_views(device: Any, rng: Any, axes: tuple[int, ...]) -> None:
    owner = rng.integers(-9, 9, (12, 20, 34)).astype(np.float32)
    for x in (owner.transpose(2, 0, 1), owner[::-1, 1::3, ::2], owner[:, :, 3:4]):
        np.testing.assert_array_equal(_reduce(device, "sum", x, axes), x.sum(axes))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((7,), 0), ((33, 70), 1), ((33, 70), 0), ((3, 5, 7), 1), ((2, 40_000), 1), ((20_000,), 0)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.float16], ids=lambda d: d.name)
def test_argmax_returns_the_first(
    device: Any, rng: Any, shape: tuple[int, ...], axis: int, dtype: dtypes.DType
) -> None:
    if not device.stores(dtypes.int64):
        pytest.skip("positions are 64-bit integers")
    x = rng.integers(-5, 5, shape).astype(dtype.numpy)
    for poison in (False, True):
        if poison and dtype.kind == "float":
            x.reshape(-1)[[x.size // 3, x.size // 2]] = np.nan
        for op, reference in (("argmax", np.argmax), ("argmin", np.argmin)):
            np.testing.assert_array_equal(_reduce(device, op, x, (axis,)), reference(x, axis), err_msg=op)


def test_argmax_over_all_axes(device: Any, rng: Any) -> None:
    if not device.stores(dtypes.int64):
        pytest.skip("positions are 64-bit integers")
    x = rng.permutation(60).reshape(3, 4, 5).astype(np.float32)
    assert _reduce(device, "argmax", x, (0, 1, 2)) == np.argmax(x)


def test_contract_reduce(device: Any, rng: Any) -> None:
    x = rng.integers(-5, 5, (6, 5000)).astype(np.int32)
    out = device.empty(dtypes.int32, (6,))
    device.backend.reduce("sum", device.upload(x), out)
    np.testing.assert_array_equal(device.download(out), x.sum(1))
