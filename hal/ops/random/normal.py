"""Standard normal numbers with the same bits on every device: the inverse of the distribution function in integer arithmetic.

One 32-bit word makes one number. Its upper bit is the sign; the others, doubled and one added, are a tail probability p in
units of 2^-33. Leading zeros give the octave of p, the next three bits a segment of it, and those after them a position t in
[0, 1) within the segment, at which a cubic is evaluated with products of 32 by 32 bits; the upper half is kept. The
cubic coefficient is halved, so that 16 by 16 bits do for its product. The result has at most 24 significant bits, so that its
conversion to float32 is exact. It is within 4.1e-7 of the quantile.

Source: Lee, Cheung, Villasenor and Luk, Inversion-based hardware Gaussian random number generator: a case study of function
evaluation via hierarchical segmentation (FPT 2006).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import HostConstant, Output, Sample, Specs, Tolerance, Trait, declare
from polyhal.hal.ops.indexing.rows import embedding
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    equal,
    less,
)
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.random.normal_table import COEFFICIENTS
from polyhal.hal.ops.random.philox import declare_random, from_words, multiply_words, random_words, shifted_right
from polyhal.hal.ops.tensor_like import TensorLike

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.schema import Params

SEGMENTS = 8
"""Segments of an octave of probabilities."""
FRACTION_BITS = 28
"""Results are counted in units of 2^-28; the largest is 6.34, so that they fit 31 bits."""
_ROUNDED = 1 << 24
"""All later results are rounded to multiples of 2^7 units."""


def quantiles(words: np.ndarray) -> np.ndarray:
    """A standard normal number from each word: uint32 to float32, in NumPy."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    tail = (words.astype(np.uint64) << np.uint64(1) | np.uint64(1)) & mask
    octave = (32 - np.frexp(tail.astype(np.float64))[1]).astype(np.uint64)
    position = (tail << (octave + np.uint64(1))) & mask
    segment = (octave << np.uint64(3) | position >> np.uint64(29)).astype(np.int64)
    t = (position << np.uint64(3)) & mask
    c0, c1, c2, c3 = np.moveaxis(np.array(COEFFICIENTS, np.uint64).reshape(-1, 4)[segment], -1, 0)
    value = c2 - (c3 * (t >> np.uint64(16)) >> np.uint64(15))
    value = c0 - ((c1 - (value * t >> half)) * t >> half)
    value = np.where(value < _ROUNDED, value, (value + np.uint64(64)) & np.uint64(0xFFFFFF80))
    magnitude = value.astype(np.float32) * np.float32(2.0**-FRACTION_BITS)
    signed: np.ndarray = np.where(words >> np.uint32(31), -magnitude, magnitude)
    return signed


def _normal(seed: int, offset: int, *, shape: tuple[int, ...], dtype: DType = dtypes.float32) -> Any:
    """Standard normal numbers, each from one word; other dtypes than float32 are rounded from it."""
    return from_words(seed, offset, shape, dtypes.as_dtype(dtype).numpy, quantiles)


# --- made of integer ops --------------------------------------------------------------------------------------------


def _column(*, column: int) -> Any:
    """One coefficient of the cubic of each segment, as a column."""
    return np.array(COEFFICIENTS, np.uint32).view(np.int32).reshape(-1, 4)[:, column : column + 1]


def _infer_column(specs: Specs, params: Params) -> list[Output]:
    return [(dtypes.int32, (len(COEFFICIENTS) // 4, 1))]


normal_coefficients = declare(
    _column,
    name="normal_coefficients",
    family="random",
    infer=_infer_column,
    lowering=HostConstant(lambda params: np.asarray(_column(**params))),
    traits=Trait.CREATION,
    public=False,
    samples=lambda rng: [Sample((), {"column": 0})],
    tolerance=Tolerance(0.0),
)


def _leading_zeros(x: TensorLike) -> Any:
    """Return the number of leading zeros of nonzero int32 words, by bisection."""
    zeros = bitwise_and(x, 0)
    for bits in (16, 8, 4, 2, 1):
        small = equal(shifted_right(x, 32 - bits), 0)
        zeros = where(small, zeros + bits, zeros)
        x = where(small, bitwise_left_shift(x, bits), x)
    return zeros


def _normal_decomposed(seed: TensorLike, offset: TensorLike, *, shape: tuple[int, ...], dtype: Any) -> Any:
    words = random_words(seed, offset, shape)
    tail = bitwise_or(bitwise_left_shift(words, 1), 1)
    octave = _leading_zeros(tail)
    position = bitwise_left_shift(bitwise_left_shift(tail, octave), 1)
    segment = bitwise_or(bitwise_left_shift(octave, 3), shifted_right(position, 29))
    t = bitwise_left_shift(position, 3)
    flat = reshape(segment, (math.prod(shape),))
    c0, c1, c2, c3 = (reshape(embedding(normal_coefficients(i), flat), shape) for i in range(4))
    value = c2 - shifted_right(c3 * shifted_right(t, 16), 15)
    value = c1 - multiply_words(value, t)[0]
    value = c0 - multiply_words(value, t)[0]
    value = where(less(value, _ROUNDED), value, bitwise_and(value + 64, -128))
    magnitude = value.cast(dtype=dtypes.float32) * 2.0**-FRACTION_BITS
    return where(less(words, 0), -magnitude, magnitude)


normal = declare_random(_normal, name="normal", decompose=_normal_decomposed, tolerance=Tolerance(0.0))
