"""Cross entropy by rows and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.hal import dtypes


def _logsumexp(x: np.ndarray) -> np.ndarray:
    """Return the logsumexp of rows as a maximum and a logarithm."""
    top = x.max(1, keepdims=True)
    return np.concatenate([top, np.log(np.exp(x - top).sum(1, keepdims=True))], 1)



@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (65, 10), (33, 65), (5, 3000)])
def test_forward_and_backward(
    device: Any, rng: Any, rows: int, classes: int, smoothing: float, dtype: dtypes.DType
) -> None:
    x = rng.uniform(-20, 20, (rows, classes)).astype(dtype.numpy).astype(np.float64)
    target = rng.integers(0, classes, rows)
    # Targets: ignored, and out of range on both sides.
    target[::3] = np.resize([-100, classes, -1], len(target[::3]))
    params = {"ignore_index": -100, "label_smoothing": smoothing}
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    check(device, "cross_entropy_rows", [x, target], dtype, ulps=16, **params)
    lse = _logsumexp(x).astype(statistic)
    g = rng.uniform(-1, 1, rows).astype(statistic)
    check(device, "cross_entropy_rows_grad", [g, x, target.astype(np.int32), lse], dtype, ulps=64, **params)


def test_gradient_of_a_mean_is_broadcast(device: Any, rng: Any) -> None:
    x = rng.uniform(-2, 2, (7, 5))
    g = np.broadcast_to(np.full((1,), 0.25, np.float32), (7,))
    lse = _logsumexp(x.astype(np.float32)).astype(np.float32)
    check(device, "cross_entropy_rows_grad", [g, x, np.arange(7) % 5, lse], ulps=16)
