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


@pytest.mark.parametrize("captured", [False, True])
def test_integers_with_scales_attend_like_the_rows_they_stand_for(device: ph.Device, captured: bool) -> None:
    """The reference rounds each row to 127 steps in float64, but for a first piece, which attends to its own numbers.

    A row of zeros stays zero. Of one token at a time, and of several at once, which other kernels compute.
    """
    rng = np.random.default_rng(1)
    q, k, v = (rng.uniform(-2, 2, (2, heads, 25, 8)).astype(np.float32) for heads in (4, 2, 2))
    k[:, 0, 2] = v[:, 1, 3] = 0
    cache = KVCache(1, 2, 2, 32, 8, "int8", device)

    def piece(*xs: ph.Tensor) -> ph.Tensor:
        out = cache.attend(0, *xs)
        cache.advance(xs[0].shape[2])
        return out

    step = ph.jit(piece) if captured else piece
    found, start = [], 0
    with ph.no_grad():
        for count in (4, 1, 1, 1, 1, 1, 16):
            new = [ph.tensor(x[:, :, start : start + count], device=device) for x in (q, k, v)]
            found.append((piece if start == 0 else step)(*new).numpy())
            start += count
    steps = [np.abs(x.astype(np.float64)).max(-1, keepdims=True) / 127 for x in (k, v)]
    rows = [np.rint(x / np.where(s > 0, s, 1)) * s for x, s in zip((k, v), steps, strict=True)]
    keys, values = (np.repeat(x, 2, 1) for x in rows)
    scores = np.where(np.tri(25, dtype=bool), q @ keys.swapaxes(-1, -2) / math.sqrt(8), -math.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ values
    # A number between two integers may round to either one: a step of values, weighted, and of a score's key.
    np.testing.assert_allclose(np.concatenate(found[1:], 2), expected[:, :, 4:], rtol=1e-4, atol=1e-5)
