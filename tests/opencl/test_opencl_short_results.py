"""The formulas that NVIDIA's devices use for results of 16 bits, on any device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import run

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_gelu_and_its_slope_from_one_power(device: Any, monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, compute_capability=90))
    x = np.concatenate([np.linspace(-12, 9, 2000), [0.0, -0.0, -40.0, 40.0]]).astype(dtype.numpy)
    wide = x.astype(np.float64)
    tail = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide])
    slope = tail + wide * np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    # Half a unit of rounding, 2e-5 of the formula, and the error of a native power and reciprocal on processors.
    error = dtypes.finfo(dtype).eps / 2 + 2.0**-10
    (actual,) = run(device, "gelu", [x], approximate="none")
    np.testing.assert_allclose(actual.astype(np.float64), wide * tail, rtol=error, atol=2.0**-25)
    (actual,) = run(device, "gelu_grad", [np.ones_like(x), x], approximate="none")
    np.testing.assert_allclose(actual.astype(np.float64), slope, rtol=error, atol=2.0**-10)
