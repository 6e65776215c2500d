"""Quantiles for normal random numbers: accuracy, tails, and the table's origin."""

from __future__ import annotations

import numpy as np
import pytest

from polyhal.hal.ops.random.normal import COEFFICIENTS, quantiles
from tools.normal_table import coefficients

stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
ndtri = pytest.importorskip("scipy.special", reason="SciPy is a development dependency").ndtri
pytestmark = pytest.mark.slow


def _words() -> np.ndarray:
    """Return random words of each magnitude, and both ends of each octave."""
    rng = np.random.default_rng(0)
    spread = [rng.integers(0, 2**bits, 4000) for bits in range(1, 32)]
    ends = [[2**k - 1, 2**k, 2**k + 1] for k in range(1, 31)]
    return np.concatenate([[0, 1, 2**31 - 1], *ends, *spread]).astype(np.uint32)


def test_quantiles_are_accurate_in_the_middle_and_far_out() -> None:
    words = _words()
    exact = -ndtri((2.0 * words + 1) / 2.0**33)
    assert abs(quantiles(words) - exact).max() < 4.2e-7  # 2^-22 from rounding, and less than that from the cubics
    assert quantiles(np.array([0], np.uint32))[0] > 6.3
    np.testing.assert_array_equal(quantiles(words[:60].reshape(3, 4, 5)).reshape(-1), quantiles(words[:60]))
    np.testing.assert_array_equal(quantiles(words | np.uint32(1 << 31)), -quantiles(words))


def test_quantiles_fall_from_word_to_word_and_stay_above_zero() -> None:
    words = np.unique(_words())
    found = quantiles(words)
    assert np.diff(found).max() <= 2.0**-21  # neighbours of a boundary between segments may differ by one rounding
    assert found.min() > 0


def test_the_middle_of_every_octave_agrees_with_the_normal_distribution() -> None:
    words = np.arange(2**11, 2**32, 2**12, dtype=np.uint64).astype(np.uint32)
    numbers = quantiles(words).astype(np.float64)
    assert stats.kstest(numbers, "norm").statistic < 2e-5
    moments = [(numbers**k).mean() for k in range(1, 9)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3, 0, 15, 0, 105], atol=1e-3, rtol=1e-2)


def test_known_answers() -> None:
    words = np.array([0, 1, 0x12345678, 0x7FFFFFFF, 0x80000000, 0xDEADBEEF, 0xFFFFFFFF], np.uint32)
    assert [float(v).hex() for v in quantiles(words)] == KNOWN


def test_the_table_equals_the_output_of_its_tool() -> None:
    assert abs(coefficients().reshape(-1) - COEFFICIENTS).max() <= 2


KNOWN = [
    "0x1.95a11a0000000p+2",
    "0x1.8aa6c80000000p+2",
    "0x1.77b2680000000p+0",
    "0x1.8000000000000p-27",
    "-0x1.95a11a0000000p+2",
    "-0x1.5441600000000p-2",
    "-0x1.8000000000000p-27",
]
