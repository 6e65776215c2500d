"""Running sums and products along any axis of any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, run

from polyhal.hal import dtypes

CASES = [((7,), 0), ((33, 70), 1), ((70, 33), 0), ((2, 50, 33), 1), ((5, 300, 3), 1), ((40_003,), 0), ((300, 17), 0)]


@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
def test_whole_numbers_are_exact(device: Any, rng: Any, shape: tuple[int, ...], axis: int) -> None:
    x = rng.integers(-9, 9, shape)
    for dtype in (np.float32, np.int32):
        np.testing.assert_array_equal(run(device, "cumsum", [x.astype(dtype)], axis=axis)[0], np.cumsum(x, axis))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64], ids=lambda d: d.name)
def test_other_floats(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    check(device, "cumsum", [rng.uniform(0, 1, (3, 700))], dtype, axis=1)
    check(device, "cumprod", [rng.uniform(0.99, 1.01, (3, 700))], dtype, ulps=700, axis=1)


def test_views(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (12, 40, 34))
    for array in (x[::2, ::-1, ::3], x.transpose(2, 0, 1), x[:, :, 5:30]):
        for axis in range(3):
            check(device, "cumsum", [array], ulps=32, axis=axis)
