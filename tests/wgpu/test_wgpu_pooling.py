"""Pooling against its reference: odd sizes, windows that overlap, padding, NaN, views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined

CASES: list[dict[str, Any]] = [
    {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)},
    {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)},
    {"kernel": (3, 3), "stride": (1, 2), "padding": (1, 0)},
]


def _pooled(op: str, x: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    return OPS[op].reference(x, **params)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c["kernel"]))
def test_max(device: Any, rng: Any, dtype: dtypes.DType, case: dict[str, Any]) -> None:
    params = {**case, "dilation": (1, 1)}
    # Few distinct values, so that windows contain equal values.
    x = rng.integers(-9, 9, (2, 3, 17, 21)).astype(np.float64)
    check(device, "max_pool2d", [x], dtype, ulps=0, **params)
    g = rng.integers(-9, 9, _pooled("max_pool2d", x, params).shape).astype(np.float64)
    check(device, "max_pool2d_grad", [g, x], dtype, ulps=0, **params)
    check(device, "max_pool2d_indices", [x], dtype, **params)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c["kernel"]))
def test_average(device: Any, rng: Any, dtype: dtypes.DType, include: bool, case: dict[str, Any]) -> None:
    params = {**case, "count_include_pad": include}
    x = rng.uniform(-1, 1, (2, 3, 17, 21))
    check(device, "avg_pool2d", [x], dtype, ulps=8, **params)
    g = rng.uniform(-1, 1, _pooled("avg_pool2d", x, params).shape)
    check(device, "avg_pool2d_grad", [g], dtype, ulps=8, shape=x.shape, **params)


def test_views_dilation_and_special_values(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (19, 3, 22, 2)).transpose(3, 1, 0, 2)[:, :, ::-1, 1:]
    params: dict[str, Any] = {"kernel": (2, 3), "stride": (1, 2), "padding": (0, 1), "dilation": (2, 2)}
    check(device, "max_pool2d", [x], ulps=0, **params)
    x = x.copy()
    x[0, 0, 3, 4], x[1, 1] = np.nan, -np.inf
    check(device, "max_pool2d", [x], ulps=0, **params)
    check(device, "max_pool2d_indices", [x], **params)
    check(device, "max_pool2d_grad", [rng.uniform(-1, 1, _pooled("max_pool2d", x, params).shape), x], **params)


def test_windows_of_more_elements_than_a_loop_has_iterations(device: Any) -> None:
    forced = device.with_quirk(loop_limit=1 << 10)
    params = {"kernel": (20, 60), "stride": (20, 60), "padding": (0, 0), "ceil_mode": False}
    spec, out = contiguous(dtypes.float32, (1, 1, 20, 60)), contiguous(dtypes.float32, (1, 1, 1, 1))
    average = params | {"count_include_pad": True, "divisor": None}
    declined = forced.backend.lower("avg_pool2d", (spec,), (out,), average)
    assert isinstance(declined, Declined)
    assert "1200 terms" in declined.reason
    assert not isinstance(
        forced.backend.lower("avg_pool2d_grad", (out,), (spec,), average | {"shape": spec.shape}), Declined
    )
