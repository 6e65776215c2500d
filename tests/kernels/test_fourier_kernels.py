"""Fourier transforms of many lengths, layouts and axes, against NumPy in float64 within the bound of their algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fourier_bounds import compare, draw

from polyhal.hal import dtypes

pytestmark = pytest.mark.kernels_of("fourier", "real_fourier", "half_fourier")


@pytest.mark.parametrize("n", [1, 2, 12, 16, 25, 64, 7 * 13, 11 * 9, 17, 1000, 1024, 1009, 5000, 16384])
def test_lengths(device: Any, rng: Any, n: int) -> None:
    x = [draw(rng, 5, n), draw(rng, 5, n)]
    compare(device, "fourier", x, axes=(1,), inverse=False, scale=1.0)
    compare(device, "fourier", x, axes=(1,), inverse=True, scale=1 / n)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 34, 45, 128, 1018, 12000])
def test_real_lengths(device: Any, rng: Any, n: int) -> None:
    compare(device, "real_fourier", [draw(rng, 3, n)], axes=(1,), scale=0.5)
    half = [draw(rng, 3, n // 2 + 1), draw(rng, 3, n // 2 + 1)]
    compare(device, "half_fourier", half, axes=(1,), length=n, scale=0.5)


@pytest.mark.parametrize("axes", [(0,), (1,), (2, 0), (0, 1, 2)], ids=str)
def test_axes(device: Any, rng: Any, axes: tuple[int, ...]) -> None:
    x = [draw(rng, 12, 10, 9), draw(rng, 12, 10, 9)]
    compare(device, "fourier", x, axes=axes, inverse=True, scale=1.0)
    compare(device, "real_fourier", x[:1], axes=axes, scale=1.0)
    length = 2 * (x[0].shape[axes[-1]] - 1)
    compare(device, "half_fourier", x, axes=axes, length=length, scale=1.0)


def test_views(device: Any, rng: Any) -> None:
    """Each part has its own layout; one is broadcast."""
    re = draw(rng, 9, 20, 3).transpose(2, 1, 0)[:, ::-2, 1:]
    im = np.broadcast_to(draw(rng, 10, 1), (3, 10, 8))
    for axis in (1, 2):
        compare(device, "fourier", [re, im], axes=(axis,), inverse=False, scale=1.0)
        compare(device, "half_fourier", [re, im], axes=(axis,), length=2 * re.shape[axis] - 1, scale=1.0)
    compare(device, "real_fourier", [re], axes=(2, 1), scale=1.0)


@pytest.mark.parametrize("lengths", [(9, 24), (12, 37), (12, 16), (9, 2100)], ids=str)
def test_zeros_after_the_operand(device: Any, rng: Any, lengths: tuple[int, int]) -> None:
    """No kernel loads them: an even number of real numbers may end within a pair."""
    x = [draw(rng, 9, 2, 15), draw(rng, 9, 2, 15)]
    compare(device, "fourier", x, axes=(0, 2), inverse=True, scale=1.0, lengths=lengths)
    compare(device, "real_fourier", x[:1], axes=(0, 2), scale=1.0, lengths=lengths)
    compare(device, "real_fourier", [x[0][..., :14]], axes=(0, 2), scale=1.0, lengths=lengths)


@pytest.mark.parametrize("dtype", [dtypes.float64], ids=lambda d: d.name)
def test_doubles(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    for n in (60, 509, 8192):
        x = [draw(rng, 2, n, dtype=dtype.name), draw(rng, 2, n, dtype=dtype.name)]
        compare(device, "fourier", x, axes=(1,), inverse=False, scale=1.0)
        compare(device, "real_fourier", x[:1], axes=(1,), scale=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("n", [65536, 3**11, 1 << 20, 1000003])
def test_long_rows(device: Any, rng: Any, n: int) -> None:
    x = [draw(rng, 1, n), draw(rng, 1, n)]
    compare(device, "fourier", x, axes=(1,), inverse=False, scale=1.0)
    compare(device, "real_fourier", x[:1], axes=(1,), scale=1.0)
    compare(device, "half_fourier", x, axes=(1,), length=2 * (n - 1), scale=1.0)
