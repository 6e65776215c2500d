"""Cross entropy by rows and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness
from native_ops import check

from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.hal import dtypes


def _logsumexp(x: np.ndarray) -> np.ndarray:
    """Return the logsumexp of rows as maximum plus logarithm."""
    top = x.max(1, keepdims=True)
    return np.concatenate([top, np.log(np.exp(x - top).sum(1, keepdims=True))], 1)



def _check(device: Any, rng: Any, rows: int, classes: int, smoothing: float, dtype: dtypes.DType, index: type) -> None:
    x = rng.uniform(-20, 20, (rows, classes)).astype(dtype.numpy).astype(np.float64)
    target = rng.integers(0, classes, rows).astype(index)
    # Ignored, and out of range on both sides.
    outside = [-100, classes, -1] if np.iinfo(index).min < 0 else [classes]
    target[::3] = np.resize(outside, len(target[::3]))
    params = {"ignore_index": -100, "label_smoothing": smoothing}
    check(device, "cross_entropy_rows", [x, target], dtype, ulps=16, **params)
    lse = _logsumexp(x).astype(np.float32)
    g = rng.uniform(-1, 1, rows).astype(np.float32)
    check(device, "cross_entropy_rows_grad", [g, x, target, lse], dtype, ulps=64, **params)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (65, 10), (33, 65), (500, 64), (5, 3000), (3, 50_257)], ids=str)
def test_forward_and_backward(device: Any, rng: Any, rows: int, classes: int, smoothing: float) -> None:
    for dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16) if rows == 65 else (dtypes.float32,):
        _check(device, rng, rows, classes, smoothing, dtype, np.int32)


@pytest.mark.parametrize("index", [np.int64, np.uint8, np.int16])
def test_targets_of_any_integer_type(device: Any, rng: Any, index: type) -> None:
    if dtypes.as_dtype(np.dtype(index)) not in device.backend.capabilities.storage:
        pytest.skip("the device does not store this dtype")
    _check(device, rng, 70, 33, 0.0, dtypes.float32, index)


def test_gradient_of_a_mean_is_broadcast(device: Any, rng: Any) -> None:
    x = rng.uniform(-2, 2, (7, 5))
    g = np.broadcast_to(np.full((1,), 0.25, np.float32), (7,))
    lse = _logsumexp(x.astype(np.float32)).astype(np.float32)
    check(device, "cross_entropy_rows_grad", [g, x, np.arange(7, dtype=np.int32) % 5, lse], ulps=16)


def test_operands_beyond_the_binding_size(found: discovery.WGPUAdapter, rng: Any) -> None:
    device = Harness(open_adapter(found, binding_limit=1 << 14))
    _check(device, rng, 300, 65, 0.1, dtypes.float32, np.int32)
