"""Reductions over any axes and layouts against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu

from polyhal.hal import dtypes

CASES = [
    ((7,), (0,)), ((1,), (0,)), ((33, 70), (1,)), ((33, 70), (0,)), ((33, 70), (0, 1)), ((4, 3000), (1,)),
    ((3000, 4), (0,)), ((3, 5, 7), (1,)), ((3, 5, 7), (0, 2)), ((3, 5, 7, 2), (0, 2)), ((3, 4, 5, 6), (1, 3)),
    ((2, 3, 4, 5, 6), (0, 2, 4)), ((100_003,), (0,)), ((2, 50_000), (1,)), ((50_000, 18), (0,)), ((9000, 5), (1,)),
    ((8, 16, 9, 9), (0, 2, 3)), ((700, 300), (0,)),
]  # fmt: skip


def _shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(shape) if i not in axes)


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_sum_and_mean(device: Any, rng: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = (rng.standard_normal(shape) + 0.5).astype(np.float32)
    r = device.upload(x)
    exact, size = x.astype(np.float64).sum(axes), np.abs(x.astype(np.float64)).sum(axes)
    n = math.prod(shape[a] for a in axes)
    # Blocked and split sums: a chain has fewer than 64 + log2(n) + sqrt(n) roundings.
    bound = np.finfo(np.float32).eps * (64 + math.sqrt(n)) * size
    out = _shape(shape, axes)
    for op, scale in (("sum", 1), ("mean", n)):
        actual = device.run(op, [r], dtypes.float32, out, axis=axes, keepdims=False)
        assert np.all(np.abs(actual - exact / scale) <= bound / scale + 1e-30), op
    np.testing.assert_array_equal(
        device.run("sum", [r], dtypes.float32, out, axis=axes), device.run("sum", [r], dtypes.float32, out, axis=axes)
    )


@pytest.mark.parametrize(("shape", "axes"), [CASES[2], CASES[3], CASES[8], CASES[12], CASES[14]], ids=str)
def test_extremes_keep_nan(device: Any, rng: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    out = _shape(shape, axes)
    for poison in (False, True):
        if poison:
            x.reshape(-1)[[0, x.size // 2]] = np.nan
        r = device.upload(x)
        for op, reference in (("max", np.max), ("min", np.min)):
            np.testing.assert_array_equal(
                device.run(op, [r], dtypes.float32, out, axis=axes), reference(x, axes), err_msg=op
            )


def test_extremes_of_infinities(device: Any) -> None:
    r = device.upload(np.full((3, 40), -np.inf, np.float32))
    assert np.all(device.run("max", [r], dtypes.float32, (3,), axis=(1,)) == -np.inf)


@pytest.mark.parametrize(
    "dtype", [dtypes.int8, dtypes.int32, dtypes.uint8, dtypes.uint64, dtypes.int64, dtypes.bool_], ids=lambda d: d.name
)
def test_integers(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    info = np.iinfo(dtype.numpy) if dtype.kind != "bool" else None
    x = rng.integers(info.min, info.max, (37, 50), dtype.numpy) if info else rng.integers(0, 2, (37, 50)).astype(bool)
    r = device.upload(x)
    wide = dtypes.uint64 if dtype.kind == "uint" else dtypes.int64
    for axes in ((0,), (1,)):
        out = _shape(x.shape, axes)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(device.run("sum", [r], wide, out, axis=axes), x.sum(axes, dtype=wide.numpy))
        for op, reference in (("max", np.max), ("min", np.min)):
            np.testing.assert_array_equal(device.run(op, [r], dtype, out, axis=axes), reference(x, axes), err_msg=op)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
def test_other_floats(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    x = rng.standard_normal((9, 700)).astype(dtype.numpy)
    exact = x.astype(np.float64).sum(1)
    actual = device.run("sum", [device.upload(x)], dtype, (9,), axis=(1,)).astype(np.float64)
    eps = float(dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(actual, exact, rtol=eps, atol=1e-4 if dtype is not dtypes.float64 else 1e-12)
    np.testing.assert_array_equal(device.run("max", [device.upload(x)], dtype, (9,), axis=(1,)), x.max(1))


def test_any_all_and_prod(device: Any, rng: Any) -> None:
    x = np.where(rng.random((40, 60)) < 0.02, np.nan, 0).astype(np.float32)
    for op, reference in (("any", np.any), ("all", np.all)):
        for axes in ((0,), (1,), (0, 1)):
            actual = device.run(op, [device.upload(x)], dtypes.bool_, _shape(x.shape, axes), axis=axes)
            np.testing.assert_array_equal(actual, reference(x, axes), err_msg=op)
    y = rng.uniform(0.8, 1.2, (5, 300)).astype(np.float32)
    np.testing.assert_allclose(
        device.run("prod", [device.upload(y)], dtypes.float32, (5,), axis=(1,)),
        np.prod(y.astype(np.float64), 1),
        rtol=5e-5,
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_views(device: Any, rng: Any, axis: int) -> None:
    owner = rng.integers(-9, 9, (12, 20, 34)).astype(np.float32)
    base = device.upload(owner)
    for array in (owner.transpose(2, 0, 1), owner[::-1, 1::3, ::2], owner[:, :, 3:4]):
        offset = (array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]) // 4
        ref = device.view(base, array.shape, tuple(s // 4 for s in array.strides), offset)
        actual = device.run("sum", [ref], dtypes.float32, _shape(array.shape, (axis,)), axis=(axis,))
        np.testing.assert_array_equal(actual, array.sum(axis))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((7,), 0), ((33, 70), 1), ((33, 70), 0), ((3, 5, 7), 1), ((2, 40_000), 1), ((20_000,), 0)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.float16], ids=lambda d: d.name)
def test_argmax_returns_the_first(device: Any, rng: Any, shape: tuple[int, ...], axis: int, dtype: dtypes.DType) -> None:
    x = rng.integers(-5, 5, shape).astype(dtype.numpy)
    out = _shape(shape, (axis,))
    for poison in (False, True):
        if poison and dtype.kind == "float":
            x.reshape(-1)[[x.size // 3, x.size // 2]] = np.nan
        r = device.upload(x)
        for op, reference in (("argmax", np.argmax), ("argmin", np.argmin)):
            actual = device.run(op, [r], dtypes.int64, out, axis=(axis,), keepdims=False)
            np.testing.assert_array_equal(actual, reference(x, axis), err_msg=op)


def test_argmax_over_all_axes(device: Any, rng: Any) -> None:
    x = rng.permutation(60).reshape(3, 4, 5).astype(np.float32)
    assert device.run("argmax", [device.upload(x)], dtypes.int64, (), axis=(0, 1, 2)) == np.argmax(x)


def test_contract_reduce(device: Any, rng: Any) -> None:
    x = rng.integers(-5, 5, (6, 5000)).astype(np.int32)
    out = device.empty(dtypes.int32, (6,))
    device.backend.reduce("sum", device.upload(x), out)
    np.testing.assert_array_equal(device.download(out), x.sum(1))


@pytest.mark.parametrize(("shape", "axis"), [((128, 10), 0), ((3, 200, 70), 1), ((513, 6), 0)], ids=str)
def test_short_columns_on_gpus(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int
) -> None:
    runtime = device.backend.runtime
    most = runtime.features.max_group_size
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, group_size=min(most, 64)))
    x = rng.standard_normal(shape).astype(np.float32)
    actual = device.run("sum", [device.upload(x)], dtypes.float32, _shape(shape, (axis,)), axis=(axis,))
    np.testing.assert_allclose(actual, x.astype(np.float64).sum(axis), rtol=1e-4, atol=1e-4)
