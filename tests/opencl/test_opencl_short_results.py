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
def test_activations_and_their_slopes_from_one_power(
    device: Any, monkeypatch: pytest.MonkeyPatch, dtype: DType
) -> None:
    """Also far from 0, where a slope is 0 or 1: the sigmoid's distance to 1 must not be a rounding error."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, compute_capability=90))
    far = [0.0, -0.0, -40.0, 40.0, -6e4, 6e4] + ([] if dtype is dtypes.float16 else [-1e38, 1e38])
    x = np.concatenate([np.linspace(-12, 9, 2000), far]).astype(dtype.numpy)
    wide = x.astype(np.float64)
    size = np.minimum(np.abs(wide), 1e4) * np.sign(wide)  # squares and powers that do not overflow
    tail = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide])
    density = np.exp(-size * size / 2) / math.sqrt(2 * math.pi)
    c = 2 * math.sqrt(2 / math.pi)
    sigmoid = lambda v: np.exp(np.minimum(v, 0) - np.log1p(np.exp(-np.abs(v))))  # noqa: E731
    logistic, by_tanh = sigmoid(wide), sigmoid(c * (size + 0.044715 * size**3))
    slope_by_tanh = by_tanh + size * by_tanh * sigmoid(-c * (size + 0.044715 * size**3)) * c * (
        1 + 3 * 0.044715 * size * size
    )
    cases: list[tuple[str, dict[str, str], Any, float]] = [
        ("gelu", {"approximate": "none"}, wide * tail, 2.0**-25),
        ("gelu", {"approximate": "tanh"}, wide * by_tanh, 2.0**-25),
        ("sigmoid", {}, logistic, 2.0**-25),
        ("silu", {}, wide * logistic, 2.0**-25),
        ("gelu_grad", {"approximate": "none"}, tail + size * density, 2.0**-10),
        ("gelu_grad", {"approximate": "tanh"}, slope_by_tanh, 2.0**-10),
        ("silu_grad", {}, logistic * (1 + size * sigmoid(-size)), 2.0**-10),
    ]
    # Half a unit of rounding, 2e-5 of the formulas, and the error of a native power and reciprocal on processors.
    error = dtypes.finfo(dtype).eps / 2 + 2.0**-10
    for op, params, wanted, smallest in cases:
        arrays = [np.ones_like(x), x] if op.endswith("_grad") else [x]
        (actual,) = run(device, op, arrays, **params)
        np.testing.assert_allclose(actual.astype(np.float64), wanted, rtol=error, atol=smallest, err_msg=op)
