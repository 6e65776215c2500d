"""Layer, root-mean-square and batch norm with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness
from native_ops import check

from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS

DTYPES = [dtypes.float32, dtypes.float16, dtypes.bfloat16]


def _row_norms(device: Any, rng: Any, shape: tuple[int, ...], axes: int, dtype: dtypes.DType, affine: bool) -> None:
    tail = shape[len(shape) - axes :]
    x, g = rng.uniform(-2, 2, shape) + 3, rng.uniform(-1, 1, shape)
    weight, bias = (rng.uniform(0.5, 1.5, tail), rng.uniform(-1, 1, tail)) if affine else (None, None)
    check(device, "layer_norm", [x, weight, bias], dtype, ulps=16, axes=axes, eps=1e-5)
    rounded = x.astype(dtype.numpy).astype(np.float64)
    _, mean, rstd = OPS["layer_norm"].reference(rounded, axes=axes)
    given = [np.asarray(s).astype(np.float32) for s in (mean, rstd)]
    check(device, "layer_norm_grad", [g, x, weight, *given], dtype, ulps=16, axes=axes)
    check(device, "rms_norm", [x, weight], dtype, ulps=16, axes=axes, eps=1e-6)
    _, rstd = OPS["rms_norm"].reference(rounded, axes=axes)
    check(device, "rms_norm_grad", [g, x, weight, np.asarray(rstd).astype(np.float32)], dtype, ulps=16, axes=axes)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 3, 4), 2), ((7,), 1), ((130, 65), 1), ((3, 1000), 1), ((300, 384), 1), ((2, 8192), 1), ((1, 40_000), 1)],
    ids=str,
)
def test_row_norms(device: Any, rng: Any, shape: tuple[int, ...], axes: int) -> None:
    for dtype in DTYPES if np.prod(shape) < 10_000 else DTYPES[:1]:
        _row_norms(device, rng, shape, axes, dtype, affine=dtype is not dtypes.float16)


def test_large_mean_does_not_cancel(device: Any, rng: Any) -> None:
    """A variance from sums of squares would lose everything here."""
    check(device, "layer_norm", [rng.uniform(-1, 1, (8, 300)) + 1000, None, None], ulps=4000, axes=1, eps=1e-5)
    x = rng.uniform(-1, 1, (6, 2, 40, 50)) + 1000
    check(device, "batch_norm", [x, None, None], ulps=4000, eps=1e-5)


def test_rows_of_a_view(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (10, 20, 48))[::2, 3:15]
    check(device, "layer_norm", [x, None, None], ulps=16, axes=1, eps=1e-5)
    check(device, "rms_norm", [x[..., 1:], rng.uniform(-1, 1, 50)[3:]], ulps=16, axes=1, eps=1e-5)


def test_operands_beyond_the_binding_size(found: discovery.WGPUAdapter, rng: Any) -> None:
    device = Harness(open_adapter(found, binding_limit=1 << 14))
    x, tail = rng.uniform(-1, 1, (90, 3, 65)), rng.uniform(-1, 1, 65)
    check(device, "layer_norm", [x, tail, tail], ulps=16, axes=1, eps=1e-5)
    check(device, "rms_norm", [x, None], ulps=16, axes=2, eps=1e-5)


@pytest.mark.parametrize("shape", [(40, 3), (2, 3, 50), (5, 7, 13, 11), (2, 1, 4, 4), (6, 2, 64, 64)], ids=str)
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm(device: Any, rng: Any, shape: tuple[int, ...], affine: bool) -> None:
    for dtype in DTYPES if np.prod(shape) < 10_000 else DTYPES[:1]:
        x, g = rng.uniform(-2, 2, shape) + 0.5, rng.uniform(-1, 1, shape)
        channels = shape[1]
        weight, bias = (rng.uniform(0.5, 1.5, channels), rng.uniform(-1, 1, channels)) if affine else (None, None)
        check(device, "batch_norm", [x, weight, bias], dtype, ulps=16, eps=1e-5)
        _, mean, variance = OPS["batch_norm"].reference(x.astype(dtype.numpy).astype(np.float64), eps=1e-5)
        given = [np.asarray(s).astype(np.float32) for s in (mean, variance)]
        check(device, "batch_norm_grad", [g, x, weight, *given], dtype, ulps=32, eps=1e-5)


def test_batch_norm_of_views(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (9, 8, 5, 12))[::2, 1:7]
    check(device, "batch_norm", [x, None, None], ulps=16, eps=1e-5)
