"""Layer, root-mean-square and batch norm with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS

pytestmark = pytest.mark.slow

KINDS = [
    (dtypes.float32, False), (dtypes.float32, True), (dtypes.float16, True), (dtypes.bfloat16, False), (dtypes.float64, True)
]  # fmt: skip
"""Dtypes, each with or without weights. Each case is a compilation; the conformance kit has the others."""


@pytest.mark.parametrize(("dtype", "affine"), KINDS, ids=str)
@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 3, 4), 2), ((7,), 1), ((130, 65), 1), ((3, 1000), 1), ((300, 384), 1)]
)
def test_row_norms(device: Any, rng: Any, shape: tuple[int, ...], axes: int, dtype: dtypes.DType, affine: bool) -> None:
    tail = shape[len(shape) - axes :]
    x, g = rng.uniform(-2, 2, shape) + 3, rng.uniform(-1, 1, shape)
    weight, bias = (rng.uniform(0.5, 1.5, tail), rng.uniform(-1, 1, tail)) if affine else (None, None)
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    check(device, "layer_norm", [x, weight, bias], dtype, ulps=16, axes=axes, eps=1e-5)
    rounded = x.astype(dtype.numpy).astype(np.float64)
    _, mean, rstd = OPS["layer_norm"].reference(rounded, axes=axes)
    given = [np.asarray(s).astype(statistic) for s in (mean, rstd)]
    check(device, "layer_norm_grad", [g, x, weight, *given], dtype, ulps=16, axes=axes)
    check(device, "rms_norm", [x, weight], dtype, ulps=16, axes=axes, eps=1e-6)
    _, rstd = OPS["rms_norm"].reference(rounded, axes=axes)
    check(device, "rms_norm_grad", [g, x, weight, np.asarray(rstd).astype(statistic)], dtype, ulps=16, axes=axes)


def test_large_mean_does_not_cancel(device: Any, rng: Any) -> None:
    """A variance from sums of squares would cancel completely here."""
    check(device, "layer_norm", [rng.uniform(-1, 1, (8, 300)) + 1000, None, None], ulps=4000, axes=1, eps=1e-5)


def test_rows_of_a_view(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (10, 20, 48))[::2, 3:15]
    check(device, "layer_norm", [x, None, None], ulps=16, axes=1, eps=1e-5)


@pytest.mark.parametrize(("dtype", "affine"), KINDS, ids=str)
@pytest.mark.parametrize(
    "shape", [(40, 3), (2, 3, 50), (5, 7, 13, 11), (70, 24, 8, 9), (2, 1, 4, 4), (40, 3, 33, 33)], ids=str
)
def test_batch_norm(device: Any, rng: Any, shape: tuple[int, ...], dtype: dtypes.DType, affine: bool) -> None:
    x, g = rng.uniform(-2, 2, shape) + 0.5, rng.uniform(-1, 1, shape)
    channels = shape[1]
    weight, bias = (rng.uniform(0.5, 1.5, channels), rng.uniform(-1, 1, channels)) if affine else (None, None)
    check(device, "batch_norm", [x, weight, bias], dtype, ulps=16, eps=1e-5)
    _, mean, variance = OPS["batch_norm"].reference(x.astype(dtype.numpy).astype(np.float64), eps=1e-5)
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    given = [np.asarray(s).astype(statistic) for s in (mean, variance)]
    check(device, "batch_norm_grad", [g, x, weight, *given], dtype, ulps=32, eps=1e-5)
    check(device, "batch_norm_relu", [x, weight, bias], dtype, ulps=16, eps=1e-5)
    check(device, "batch_norm_relu_grad", [g, x, weight, bias, *given], dtype, ulps=32, eps=1e-5)


@pytest.mark.parametrize(("dtype", "affine"), KINDS, ids=str)
@pytest.mark.parametrize(
    ("shape", "groups"), [((5, 6), 3), ((2, 6, 50), 2), ((3, 8, 13, 7), 4), ((2, 4, 16, 16), 1)], ids=str
)
def test_group_norm(
    device: Any, rng: Any, shape: tuple[int, ...], groups: int, dtype: dtypes.DType, affine: bool
) -> None:
    x, g = rng.uniform(-2, 2, shape) + 0.5, rng.uniform(-1, 1, shape)
    channels = shape[1]
    weight, bias = (rng.uniform(0.5, 1.5, channels), rng.uniform(-1, 1, channels)) if affine else (None, None)
    check(device, "group_norm", [x, weight, bias], dtype, ulps=32, groups=groups, eps=1e-3)
    _, mean, rstd = OPS["group_norm"].reference(x.astype(dtype.numpy).astype(np.float64), groups=groups, eps=1e-3)
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    given = [np.asarray(s).astype(statistic) for s in (mean, rstd)]
    check(device, "group_norm_grad", [g, x, weight, *given], dtype, ulps=64, groups=groups)
