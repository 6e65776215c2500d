"""Fourier transforms by a backend's kernels, compared with NumPy in float64 within the bound of their algorithm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from native_ops import run

from polyhal.backends.common.problems.fft_lengths import padded_length, radices
from polyhal.backends.common.problems.fft_tables import chirp_spectrum
from polyhal.hal.ops import OPS

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def roundings(n: int) -> float:
    """Bound the error of a transform of n numbers, in units of its 2-norm times the unit roundoff.

    A stage of radix 2 adds 1 + 4 sqrt(2) units (Higham 2002, theorem 24.2). An odd radix r, a sum of r products in pairs with a
    common factor, adds at most r / 2 + 4 units to each of r numbers, and sqrt(r) times as much to their norm. Bluestein's
    algorithm consists of two transforms of a padded length and three products, with an amplification by the largest number of
    the chirp's spectrum.
    """
    found = radices(n)
    if found:
        return sum(6.7 * math.log2(r) if r % 2 == 0 else math.sqrt(r) * (r / 2 + 4) for r in found) + 1
    padded = padded_length(n)
    growth = np.abs(chirp_spectrum(n, padded)).max() * padded / math.sqrt(n)
    return (2 * roundings(padded) + 12) * float(growth)


def compare(device: Any, op: str, arrays: list[np.ndarray], **params: Any) -> None:
    """Compare all parts of a result at once: an error of one part may come from the other."""
    got = np.stack(run(device, op, arrays, **params))
    want = np.stack(OPS[op].reference(*(a.astype(np.float64) for a in arrays), **params)).reshape(got.shape)
    shape = arrays[0].shape
    lengths = list(params.get("lengths") or [shape[a] for a in params["axes"]])
    lengths[-1] = params.get("length", lengths[-1])
    # Real transforms of even lengths are complex ones of half the length and a step like that of radix 2.
    bound = sum(max(roundings(n), roundings(n // 2 or 1) + 8) for n in lengths) * UNIT[got.dtype.name]
    norm = np.sqrt((want**2).sum(keepdims=True))
    assert np.sqrt(((got - want) ** 2).sum()) <= bound * norm.item()
    # No element is far off: the error is spread over all of them.
    assert np.abs(got - want).max() <= bound * norm.item()


def draw(rng: Any, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(dtype)
