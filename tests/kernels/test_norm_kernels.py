"""Layer, root-mean-square, batch and group norm with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, check_added_gradients

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS

KINDS = [
    pytest.param(dtype, affine, marks=[] if (dtype, affine) == (dtypes.float32, True) else pytest.mark.slow)
    for dtype, affine in (
        (dtypes.float32, True),
        (dtypes.float32, False),
        (dtypes.float16, True),
        (dtypes.bfloat16, False),
        (dtypes.float64, True),
    )
]
"""Dtypes, each with or without weights. Each case is a compilation; the conformance kit has the others."""


def _weights(rng: Any, shape: tuple[int, ...], affine: bool) -> tuple[Any, Any]:
    return (rng.uniform(0.5, 1.5, shape), rng.uniform(-1, 1, shape)) if affine else (None, None)


def _statistics(op: str, x: np.ndarray, dtype: dtypes.DType, **params: Any) -> list[np.ndarray]:
    """Return the statistics that `op` saves for its gradient, of `x` rounded to `dtype`."""
    _, *saved = OPS[op].reference(x.astype(dtype.numpy).astype(np.float64), **params)
    kind = np.float64 if dtype is dtypes.float64 else np.float32
    return [np.asarray(s).astype(kind) for s in saved]


def _check_row_norms(
    device: Any, rng: Any, shape: tuple[int, ...], axes: int, dtype: dtypes.DType, affine: bool
) -> None:
    x, g = rng.uniform(-2, 2, shape) + 3, rng.uniform(-1, 1, shape)
    weight, bias = _weights(rng, shape[len(shape) - axes :], affine)
    check(device, "layer_norm", [x, weight, bias], dtype, ulps=16, axes=axes, eps=1e-5)
    saved = _statistics("layer_norm", x, dtype, axes=axes)
    check(device, "layer_norm_grad", [g, x, weight, *saved], dtype, ulps=16, axes=axes)
    check(device, "rms_norm", [x, weight], dtype, ulps=16, axes=axes, eps=1e-6)
    saved = _statistics("rms_norm", x, dtype, axes=axes)
    check(device, "rms_norm_grad", [g, x, weight, *saved], dtype, ulps=16, axes=axes)


@pytest.mark.parametrize(("dtype", "affine"), KINDS, ids=str)
@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 3, 4), 2), ((7,), 1), ((130, 65), 1), ((3, 1000), 1), ((300, 384), 1)], ids=str
)
def test_row_norms(device: Any, rng: Any, shape: tuple[int, ...], axes: int, dtype: dtypes.DType, affine: bool) -> None:
    _check_row_norms(device, rng, shape, axes, dtype, affine)


@pytest.mark.only_on("opencl")
@pytest.mark.parametrize("shape", [(130, 65), (300, 384)], ids=str)
def test_rows_that_are_cast(device: Any, rng: Any, shape: tuple[int, int]) -> None:
    x, (weight, bias) = rng.uniform(-2, 2, shape) + 3, _weights(rng, shape[1:], True)
    for out_dtype in (dtypes.bfloat16, dtypes.float16):
        check(device, "layer_norm", [x, weight, bias], ulps=16, axes=1, eps=1e-5, out_dtype=out_dtype)
        check(device, "rms_norm", [x, weight], ulps=16, axes=1, eps=1e-6, out_dtype=out_dtype)
        check_added_gradients(device, rng, shape, out_dtype)


@pytest.mark.parametrize("shape", [(2, 8192), (1, 40_000)], ids=str)
def test_long_rows(device: Any, rng: Any, shape: tuple[int, ...]) -> None:
    _check_row_norms(device, rng, shape, 1, dtypes.float32, True)


def test_large_mean_does_not_cancel(device: Any, rng: Any) -> None:
    """A variance from sums of squares would cancel completely here."""
    check(device, "layer_norm", [rng.uniform(-1, 1, (8, 300)) + 1000, None, None], ulps=4000, axes=1, eps=1e-5)
    x = rng.uniform(-1, 1, (6, 2, 40, 50)) + 1000
    check(device, "batch_norm", [x, None, None], ulps=4000, eps=1e-5)
    check(device, "batch_norm", [rng.uniform(-1, 1, (500, 16)) + 1000, None, None], ulps=4000, eps=1e-5)


def test_views(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (10, 20, 48))[::2, 3:15]
    check(device, "layer_norm", [x, None, None], ulps=16, axes=1, eps=1e-5)
    check(device, "rms_norm", [x[..., 1:], rng.uniform(-1, 1, 50)[3:]], ulps=16, axes=1, eps=1e-5)
    check(device, "batch_norm", [rng.uniform(-1, 1, (9, 8, 5, 12))[::2, 1:7], None, None], ulps=16, eps=1e-5)
    check(device, "batch_norm", [rng.uniform(-1, 1, (300, 40))[::2, 1:21], None, None], ulps=16, eps=1e-5)


IMAGES = [(40, 3), (600, 72), (2, 3, 50), (5, 7, 13, 11), (70, 24, 8, 9), (2, 1, 4, 4), (40, 3, 33, 33), (6, 2, 64, 64)]


def _check_batch_norm(
    device: Any, rng: Any, suffix: str, shape: tuple[int, ...], dtype: dtypes.DType, affine: bool
) -> None:
    x, g = rng.uniform(-2, 2, shape) + 0.5, rng.uniform(-1, 1, shape)
    weight, bias = _weights(rng, shape[1:2], affine)
    check(device, f"batch_norm{suffix}", [x, weight, bias], dtype, ulps=16, eps=1e-5)
    shift = [bias] if suffix else []
    saved = _statistics("batch_norm", x, dtype, eps=1e-5)
    check(device, f"batch_norm{suffix}_grad", [g, x, weight, *shift, *saved], dtype, ulps=32, eps=1e-5)


@pytest.mark.parametrize(("dtype", "affine"), KINDS, ids=str)
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_batch_norm(device: Any, rng: Any, shape: tuple[int, ...], dtype: dtypes.DType, affine: bool) -> None:
    _check_batch_norm(device, rng, "", shape, dtype, affine)


@pytest.mark.kernels_of("batch_norm_relu", "batch_norm_relu_grad")
@pytest.mark.parametrize(("dtype", "affine"), KINDS, ids=str)
@pytest.mark.parametrize("shape", IMAGES[:-1], ids=str)
def test_batch_norm_and_relu(device: Any, rng: Any, shape: tuple[int, ...], dtype: dtypes.DType, affine: bool) -> None:
    _check_batch_norm(device, rng, "_relu", shape, dtype, affine)


@pytest.mark.kernels_of("batch_norm_add_relu")
@pytest.mark.parametrize("shape", IMAGES[:3], ids=str)
def test_batch_norm_of_a_residual_block(device: Any, rng: Any, shape: tuple[int, ...]) -> None:
    x, addend = rng.uniform(-2, 2, shape) + 0.5, rng.uniform(-1, 1, shape)
    check(device, "batch_norm_add_relu", [x, addend, *_weights(rng, shape[1:2], True)], ulps=16, eps=1e-5)


@pytest.mark.kernels_of("group_norm", "group_norm_grad")
@pytest.mark.parametrize(("dtype", "affine"), KINDS, ids=str)
@pytest.mark.parametrize(
    ("shape", "groups"), [((5, 6), 3), ((2, 6, 50), 2), ((3, 8, 13, 7), 4), ((2, 4, 16, 16), 1)], ids=str
)
def test_group_norm(
    device: Any, rng: Any, shape: tuple[int, ...], groups: int, dtype: dtypes.DType, affine: bool
) -> None:
    x, g = rng.uniform(-2, 2, shape) + 0.5, rng.uniform(-1, 1, shape)
    weight, bias = _weights(rng, shape[1:2], affine)
    check(device, "group_norm", [x, weight, bias], dtype, ulps=32, groups=groups, eps=1e-3)
    saved = _statistics("group_norm", x, dtype, groups=groups, eps=1e-3)
    check(device, "group_norm_grad", [g, x, weight, *saved], dtype, ulps=64, groups=groups)
