"""Bytes of the fields of encoded blocks."""

from __future__ import annotations

import numpy as np


def halfs(x: np.ndarray) -> np.ndarray:
    """The bytes of float16 numbers (..., n), as (..., 2n)."""
    return np.ascontiguousarray(x.astype("<f2")).view(np.uint8)


def rounded_to_half(x: np.ndarray) -> np.ndarray:
    """Numbers as a field of float16 gives them back."""
    return x.astype(np.float16).astype(np.float32)


def nibbles(q: np.ndarray, half: int = 16) -> np.ndarray:
    """Codes of 4 bits (..., m * 2 * half): of every 2 * half, the first half in the low bits, the second in the high ones."""
    q = q.astype(np.uint8).reshape(*q.shape[:-1], -1, 2, half)
    return (q[..., 0, :] | q[..., 1, :] << 4).reshape(*q.shape[:-3], -1)


def bit_fields(q: np.ndarray, bits: int, width: int) -> np.ndarray:
    """Codes of few bits (..., m * (8 / bits) * width): byte i of a part holds the codes i, i + width, i + 2 width ..."""
    count = 8 // bits
    q = q.astype(np.uint8).reshape(*q.shape[:-1], -1, count, width)
    places = (np.arange(count, dtype=np.uint8) * bits)[:, None]
    packed = np.bitwise_or.reduce(q << places, axis=-2)
    return np.asarray(packed.reshape(*q.shape[:-3], -1))
