"""GPU paths of row kernels (rows in registers, results combined by groups), on any available device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check, check_added_gradients, check_joined_cross_entropy, run

from polyhal.backends.opencl_c.lowering.reduction import scan_ahead
from polyhal.hal import dtypes
from polyhal.hal.core.settings.state import settings
from polyhal.hal.ops import OPS

pytestmark = pytest.mark.slow


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU with four compute units."""
    runtime = device.backend.runtime
    most = runtime.features.max_group_size
    found = as_gpu(runtime.features, group_size=min(most, 64), vector_width=4, compute_units=4)
    monkeypatch.setattr(runtime, "features", found)
    return device


@pytest.mark.parametrize("shape", [(3, 256), (150, 256), (2, 333), (2, 9000)], ids=str)
def test_rows_in_registers_and_not(gpu: Any, rng: Any, shape: tuple[int, ...]) -> None:
    x, g = rng.uniform(-9, 9, shape), rng.uniform(-1, 1, shape)
    check(gpu, "softmax", [x], ulps=32, axis=1)
    check(gpu, "log_softmax", [x], axis=1)
    check(gpu, "softmax_grad", [g, OPS["softmax"].reference(x, axis=1)], magnitude=1, axis=1)
    weight, bias = rng.uniform(0.5, 1.5, shape[1]), rng.uniform(-1, 1, shape[1])
    check(gpu, "layer_norm", [x, weight, bias], ulps=16, axes=1, eps=1e-5)
    _, mean, rstd = OPS["layer_norm"].reference(x.astype(np.float32).astype(np.float64), axes=1)
    check(gpu, "layer_norm_grad", [g, x, weight, mean, rstd], ulps=64, axes=1)
    check_added_gradients(gpu, rng, shape, dtypes.bfloat16)
    check(gpu, "cross_entropy_rows", [x, rng.integers(0, shape[1], shape[0])], ulps=16)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda d: d.name)
def test_cross_entropy_in_rows_that_end_within_a_vector(gpu: Any, rng: Any, dtype: dtypes.DType) -> None:
    x = rng.uniform(-9, 9, (4, 9024)).astype(dtype.numpy)[:, :9001]
    target = np.array([5, 8999, 9000, -100])
    check(gpu, "cross_entropy_rows", [x, target], dtype, ulps=16)
    wide = x.astype(np.float64)
    lse = np.stack([np.zeros(4), np.log(np.exp(wide).sum(1))], 1).astype(np.float32)
    g = rng.uniform(-1, 1, 4).astype(np.float32)
    check(gpu, "cross_entropy_rows_grad", [g, x, target, lse], dtype, ulps=64, columns=9024)


@pytest.mark.parametrize("memory", [0, 1 << 18])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((4, 9001), dtypes.bfloat16),
        ((3, 9024), dtypes.float32),
        ((4, 8200), dtypes.float16),
        ((5, 256), dtypes.float32),
    ],
    ids=str,
)
def test_loss_and_gradient_by_rows_in_local_memory(
    gpu: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: dtypes.DType, memory: int
) -> None:
    """Also without local memory for two rows, and with rows in registers; rows of the gradient are aligned."""
    runtime = gpu.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, static_local_memory=memory))
    check_joined_cross_entropy(gpu, rng, shape, dtype, columns=-(-shape[1] // 64) * 64)


@pytest.mark.parametrize("rows", [20, 3001])
def test_mean_of_losses_without_ignored_ones(gpu: Any, rng: Any, rows: int) -> None:
    target = rng.integers(0, 5, rows)
    losses = np.where(target == 2, 0, rng.uniform(0, 3, rows))
    check(gpu, "mean_loss", [losses, target], ignore_index=2)
    check(gpu, "mean_loss", [losses[::2], target.astype(np.int32)[::2]], dtypes.bfloat16, ignore_index=2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mean_cross_entropy_of_few_logits(gpu: Any, rng: Any, smoothing: float) -> None:
    x, target = rng.uniform(-9, 9, (150, 13)), rng.integers(0, 13, 150)
    # Targets: ignored, and out of range on both sides.
    target[:9] = np.resize([-100, 13, -1], 9)
    check(gpu, "mean_cross_entropy", [x, target], ulps=64, label_smoothing=smoothing)
    check(gpu, "mean_cross_entropy", [x.T.copy().T, target.astype(np.int32)], ulps=64, label_smoothing=smoothing)


def test_masked_rows(gpu: Any) -> None:
    x = np.full((2, 9000), -np.inf)
    x[0, 7000] = 1
    check(gpu, "softmax", [x], axis=1)


@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)], ids=str)
def test_reductions(gpu: Any, rng: Any, axis: tuple[int, ...]) -> None:
    x = rng.integers(-99, 99, (40, 3000)).astype(np.float32)
    for op in ("sum", "max", "argmax"):
        got = run(gpu, op, [x], axis=axis if len(axis) == 1 else None)[0]
        np.testing.assert_array_equal(got, getattr(np, op)(x, axis[0] if len(axis) == 1 else None), err_msg=op)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("columns", [40, 37])
def test_tall_columns(gpu: Any, rng: Any, dtype: dtypes.DType, columns: int) -> None:
    """Groups, and the work-items of a group, divide each column."""
    x = (rng.random((3000, columns)) < 0.1).astype(dtype.numpy)
    x[2999, 3] = 5
    np.testing.assert_array_equal(run(gpu, "sum", [x], axis=0)[0], x.astype(np.float64).sum(0))
    np.testing.assert_array_equal(run(gpu, "max", [x], axis=0)[0], x.max(0))


def test_sorting_and_scans(gpu: Any, rng: Any) -> None:
    x = rng.integers(-9, 9, (2, 3000)).astype(dtypes.float32.numpy)
    np.testing.assert_array_equal(run(gpu, "sort_pairs", [x], axis=1)[1], np.argsort(x, 1, kind="stable"))
    np.testing.assert_array_equal(run(gpu, "topk", [x], k=5, axis=1)[0], -np.sort(-x, 1)[:, :5])
    for axis in (0, 1):
        np.testing.assert_array_equal(run(gpu, "cumsum", [x], axis=axis)[0], np.cumsum(x, axis))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.float64], ids=lambda d: d.name)
def test_groups_wait_for_totals_of_earlier_tiles(
    gpu: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, dtype: dtypes.DType
) -> None:
    """A tile adds up in 17 roundings, 32 tiles of a block in 5, and blocks without an error that grows.

    Tiles that are copied ahead add up in 25, and 128 of a block in 9. The tolerance is 48 roundings.
    """
    runtime = gpu.backend.runtime
    monkeypatch.setattr(
        runtime, "features", replace(runtime.features, forward_progress=True, static_local_memory=1 << 18)
    )
    monkeypatch.setattr(scan_ahead, "_VECTORS", 2)
    monkeypatch.setattr(scan_ahead, "_MIN_TILES", 30)  # with four units: only for the second shape
    for shape in ((140_000,), (560_004,), (2, 20_001)):
        x = rng.integers(0, 99, shape) if dtype is dtypes.int32 else rng.uniform(0, 1, shape)
        x = x.astype(dtype.numpy)
        (got,) = run(gpu, "cumsum", [x], axis=-1)
        exact = np.cumsum(x.astype(np.longdouble), -1)
        rtol = 24 * np.finfo(dtype.numpy).eps if dtype.kind == "float" else 0
        np.testing.assert_allclose(got.astype(np.longdouble), exact, rtol=rtol)
        x[..., 7777] = np.nan if dtype.kind == "float" else 100
        (got,) = run(gpu, "running_max", [x], axis=-1)
        np.testing.assert_array_equal(got, np.maximum.accumulate(x, -1))


def _special(rng: Any, shape: tuple[int, ...], dtype: dtypes.DType) -> np.ndarray:
    """Return many equal elements, extremes, zeros of both signs and NaN."""
    if dtype.kind != "float":
        info = np.iinfo(dtype.numpy)
        return rng.choice(np.array([info.min, 0, 1, 300 % info.max, info.max], dtype.numpy), shape)
    x = rng.integers(-5, 5, shape).astype(dtype.numpy)
    for step, value in ((5, np.nan), (7, -0.0), (11, np.inf), (13, -np.inf)):
        x.reshape(-1)[::step] = value
    return x


def _same(gpu: Any, op: str, x: np.ndarray, **params: Any) -> None:
    for got, want in zip(run(gpu, op, [x], **params), OPS[op].reference(x, **params), strict=True):
        assert got.tobytes() == np.ascontiguousarray(want).astype(got.dtype).tobytes()


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize(
    ("dtype", "descending"),
    [
        (dtypes.float32, False),
        (dtypes.float32, True),
        (dtypes.float16, True),
        (dtypes.int64, True),
        (dtypes.uint16, False),
    ],
    ids=str,
)
def test_sorting_by_digits(
    gpu: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, dtype: dtypes.DType, descending: bool, waiting: bool
) -> None:
    runtime = gpu.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, forward_progress=waiting))
    for shape, axis in (((3, 100), 1), ((70, 3), 0), ((2, 9000), 1)):
        _same(gpu, "sort_pairs", _special(rng, shape, dtype), axis=axis, descending=descending)


@pytest.mark.parametrize("largest", [False, True])
def test_top_k_prunes_pieces(gpu: Any, rng: Any, largest: bool) -> None:
    for x in (_special(rng, (1, 150_001), dtypes.float32), rng.standard_normal((1, 150_001)).astype(np.float32)):
        _same(gpu, "topk", x, k=130, axis=1, largest=largest)


@pytest.mark.parametrize("deterministic", [False, True])
def test_elements_are_added_along_an_axis(
    gpu: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    monkeypatch.setattr(settings, "deterministic", deterministic)
    for dtype in (np.float32, np.int32):
        x, index = rng.integers(-99, 99, (3, 70, 5)).astype(dtype), rng.integers(-4, 4, (3, 70, 5))
        for base in (None, rng.integers(-99, 99, (3, 4, 5)).astype(dtype)):
            want = OPS["scatter_along_axis"].reference(x, index, base, axis=1, length=4)
            np.testing.assert_array_equal(run(gpu, "scatter_along_axis", [x, index, base], axis=1, length=4)[0], want)


def test_group_norm(gpu: Any, rng: Any) -> None:
    x = rng.uniform(-2, 2, (2, 4, 8, 8))
    check(gpu, "group_norm", [x, rng.uniform(0.5, 1.5, 4), None], ulps=32, groups=2, eps=1e-3)
