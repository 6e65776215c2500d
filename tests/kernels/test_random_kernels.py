"""Random bits that agree with the published generator, and distributions derived from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, run

from polyhal.hal import dtypes


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (100, 1000)], ids=str)
@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (12345678901234567, (1 << 32) - 2), (1, 5)])
def test_bits_and_distributions_are_exact(device: Any, shape: tuple[int, ...], seed: int, offset: int) -> None:
    check(device, "random_bits", [seed, offset], shape=shape)
    check(device, "uniform", [seed, offset], ulps=0, shape=shape, dtype=dtypes.float32)
    check(device, "normal", [seed, offset], ulps=0, shape=shape, dtype=dtypes.float32)


def test_normal(device: Any) -> None:
    check(device, "normal", [3, 4], ulps=0, shape=(200001,), dtype=dtypes.float32)
    (out,) = run(device, "normal", [3, 4], shape=(200001,), dtype=dtypes.float32)
    assert abs(out.mean()) < 0.01
    assert abs(out.std() - 1) < 0.01
    (half,) = run(device, "normal", [3, 4], shape=(1001,), dtype=dtypes.float16)
    np.testing.assert_array_equal(half, out[:1001].astype(np.float16))


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name
)
def test_dropout(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    check(device, "dropout", [rng.uniform(0.5, 2, (33, 70)), 42, 3], dtype, ulps=1, p=0.3)
    check(device, "dropout", [rng.uniform(0.5, 2, (7, 5)), 42, 3], dtype, ulps=1, p=0.3)


def test_dropout_of_a_view_equals_dropout_of_a_copy(device: Any, rng: Any) -> None:
    x = rng.uniform(0.5, 2, (8, 9, 10)).astype(np.float32)
    for view in (x.transpose(2, 0, 1), x[1:, :, 3:], x.reshape(-1)[5:]):
        (of_view,), (of_copy,) = (run(device, "dropout", [a, 1, 2], p=0.5) for a in (view, view.copy()))
        np.testing.assert_array_equal(of_view, of_copy)
