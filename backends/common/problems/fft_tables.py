"""Constants of Fourier transforms: roots of unity in float64, chirps, and their packing into one table per launch.

Devices compute no sine: their own functions lose bits for large angles, and a table costs one load.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.complex128]


def roots(exponents: NDArray[np.int64], n: int) -> Numbers:
    """Return `exp(-2i pi e / n)` for integers e, each part correct to the last bits of float64.

    Angles are reduced to an eighth of the circle in integers, where sine and cosine have no large arguments.
    """
    octant, rest = np.divmod(8 * (exponents % n), n)
    odd = octant % 2 == 1
    angle = np.where(odd, n - rest, rest) * (np.pi / (4 * n))
    near, far = np.cos(angle), np.sin(angle)
    swapped = ((octant + 1) // 2) % 2 == 1
    cosine, sine = np.where(swapped, far, near), np.where(swapped, near, far)
    cosine = np.where((octant >= 2) & (octant < 6), -cosine, cosine)
    return cosine - 1j * np.where(octant >= 4, -sine, sine)


def stage_roots(radices: Sequence[int]) -> Numbers:
    """Return the factors between the stages of a transform, stage after stage.

    Before a stage of radix r, transforms of `span` elements are complete; element c > 0 of its butterfly k in `span` is
    multiplied by `exp(-2i pi c k / (r span))`, which is at position (c - 1) span + k of the stage.
    """
    parts, span = [np.zeros(0, np.complex128)], 1
    for radix in radices:
        if span > 1:
            products = np.arange(1, radix)[:, None] * np.arange(span)
            parts.append(roots(products.reshape(-1), radix * span))
        span *= radix
    return np.concatenate(parts)


def fine_count(n: int) -> int:
    """Return the entries of the fine table of roots of order n: a power of two near the square root."""
    return 1 << ((n.bit_length() + 1) // 2)


def fine_and_coarse(n: int) -> tuple[Numbers, Numbers]:
    """Return roots of order n for exponents below `fine_count(n)`, and for its multiples: each root is a product of two."""
    fine = fine_count(n)
    return roots(np.arange(fine), n), roots(np.arange(-(-n // fine)) * fine, n)


@lru_cache(2)
def chirp(n: int) -> Numbers:
    """Return `exp(-i pi j^2 / n)` for j < n, by which Bluestein's algorithm makes a transform a convolution."""
    j = np.arange(n)
    return roots(j * j % (2 * n), 2 * n)


@lru_cache(2)
def chirp_spectrum(n: int, padded: int) -> Numbers:
    """Return the transform, of length `padded` >= 2 n - 1, of the conjugate chirp, over `padded`."""
    filter_ = np.zeros(padded, np.complex128)
    filter_[:n] = chirp(n).conj()
    if n > 1:
        filter_[1 - n :] = filter_[n - 1 : 0 : -1]
    spectrum: Numbers = np.fft.fft(filter_) / padded
    return spectrum


def packed(parts: Sequence[Numbers], itemsize: int) -> bytes:
    """Return the bytes of complex numbers of parts of `itemsize` bytes; at least one number."""
    joined = np.concatenate([*parts, np.ones(1)])
    return joined.astype(np.complex64 if itemsize == 4 else np.complex128).tobytes()
