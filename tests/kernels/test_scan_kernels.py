"""Running sums and products along any axis of any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, run

from polyhal.hal import dtypes

pytestmark = pytest.mark.kernels_of("cumsum", "cumprod")

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


LONG = [((1 << 17, 17), 0), ((1 << 17, 3), 0), ((17, 1 << 15), 1), ((1 << 18,), 0)]


@pytest.mark.parametrize(("shape", "axis"), LONG, ids=str)
def test_long_sums_are_as_exact_as_short_ones(device: Any, shape: tuple[int, ...], axis: int) -> None:
    """Equal terms round in one direction, so an error per term would grow to 1e-3 over 2^17 terms.

    Within a block of 512 terms the error is below 512 rounding units of the block's sum, which is small against the
    total.
    """
    x = np.full(shape, 0.1, np.float32)
    (got,) = run(device, "cumsum", [x], axis=axis)
    count = np.arange(1, shape[axis] + 1).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    got, expected = (
        np.moveaxis(got, axis, 0),
        np.moveaxis(np.broadcast_to(count * np.float64(x.flat[0]), shape), axis, 0),
    )
    np.testing.assert_allclose(got[1 << 13 :], expected[1 << 13 :], rtol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((300, 17), 0), ((2, 700), 1)], ids=str)
def test_infinities_stay_in_running_sums(device: Any, rng: Any, shape: tuple[int, ...], axis: int) -> None:
    x = rng.uniform(-1, 1, shape).astype(np.float32)
    x[1, 1], x[0, 3] = np.inf, 3e38
    x.take(0, axis)[...] = 0
    x[(150, 4) if axis == 0 else (1, 150)] = -np.inf
    x[(0, 5) if axis == 0 else (0, 100)] = 3e38
    x[(1, 5) if axis == 0 else (0, 101)] = 3e38
    (got,) = run(device, "cumsum", [x], axis=axis)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.cumsum(x, axis)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.where(np.isinf(expected), got, 0), np.where(np.isinf(expected), expected, 0))
