"""The key-value cache, compared with attention in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import polyhal as ph
from polyhal.nn import KVCache


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_scale_window_and_softcap(softcap: float | None) -> None:
    """Pieces of a sequence, at first of several positions, with two query heads per head of keys."""
    rng, scale, window = np.random.default_rng(0), 0.7, 3
    q, k, v = (rng.uniform(-2, 2, (2, heads, 9, 8)).astype(np.float32) for heads in (4, 2, 2))
    cache = KVCache(1, 2, 2, 16, 8, "float32", "numpy")
    found, start = [], 0
    for count in (4, 1, 3, 1):
        piece = [ph.tensor(x[:, :, start : start + count], device="numpy") for x in (q, k, v)]
        found.append(cache.attend(0, *piece, scale=scale, window=window, softcap=softcap).numpy())
        cache.advance(count)
        start += count
    keys, values = (np.repeat(x.astype(np.float64), 2, 1) for x in (k, v))
    scores = q @ keys.swapaxes(-1, -2) * scale
    scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
    distance = np.arange(9)[:, None] - np.arange(9)
    scores = np.where((distance >= 0) & (distance < window), scores, -math.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ values
    np.testing.assert_allclose(np.concatenate(found, 2), expected, rtol=1e-4, atol=1e-5)
