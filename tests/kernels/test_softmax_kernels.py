"""Softmax along any axis of any layout: rows kept in registers, rows read repeatedly, rows in windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.hal import dtypes

DTYPES = [dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64]
CASES = [((7,), 0), ((1000, 17), 1), ((5, 1025), 1), ((64, 33), 0), ((3, 40, 6), 1), ((4, 2, 5, 3), 1), ((2, 5000), 1)]
LONG = [((300, 384), 1), ((3, 8192), 1), ((1, 40_001), 1), ((5000, 30), 0)]


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [*((*case, dtype) for case in CASES for dtype in DTYPES), *((*case, dtypes.float32) for case in LONG)],
    ids=str,
)
def test_forward_and_backward(device: Any, rng: Any, shape: tuple[int, ...], axis: int, dtype: dtypes.DType) -> None:
    x, g = rng.uniform(-30, 30, shape), rng.uniform(-1, 1, shape)
    check(device, "softmax", [x], dtype, ulps=32, axis=axis)
    check(device, "log_softmax", [x], dtype, axis=axis)
    e = np.exp(x - x.max(axis, keepdims=True))
    out = e / e.sum(axis, keepdims=True)
    check(device, "softmax_grad", [g, out], dtype, magnitude=1, axis=axis)
    check(device, "log_softmax_grad", [g, np.log(out)], dtype, ulps=64, magnitude=1, axis=axis)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_views(device: Any, rng: Any, axis: int) -> None:
    x = rng.uniform(-4, 4, (6, 40, 8))[::2, :, ::-1].transpose(1, 2, 0)
    check(device, "softmax", [x], axis=axis)
    check(device, "log_softmax", [rng.uniform(-4, 4, (5, 3, 70))[:, :, 3:67]], axis=axis)
