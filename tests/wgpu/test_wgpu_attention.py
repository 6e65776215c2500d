"""Attention with small tiles, and calls that the kernels do not support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, check_attention, draw_attention, lower, upload

from polyhal.backends.wgpu.lowering.attention import rotary_attention, tiles
from polyhal.backends.wgpu.lowering.attention.rotary_attention import PositionTile
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined


def test_small_tiles(device: Any, rng: Any, monkeypatch: Any) -> None:
    """Tiles for devices with little workgroup memory."""
    if device.backend.features.cpu:
        pytest.skip("the kernels of GPUs")
    monkeypatch.setattr(tiles, "FORWARD", tiles.FORWARD[-1:])
    monkeypatch.setattr(tiles, "BACKWARD", tiles.BACKWARD[-1:])
    check_attention(device, [*draw_attention(rng, (2,), 70, 90, 16, 16), None], causal=True)


def test_unsupported_calls_are_declined(device: Any, rng: Any) -> None:
    q, k, v = (x.astype(np.float32) for x in draw_attention(rng, (2,), 5, 6, 8, 6))
    wide = np.zeros((2, 5, 200), np.float32)
    for inputs, reason in (([wide, wide, q], "200 features"), ([q, k, v.swapaxes(1, 2)], "not contiguous")):
        refs = [upload(device, x) for x in inputs]
        answer, _ = lower(device, "attention", [*refs, None], {"causal": False})
        assert isinstance(answer, Declined)
        assert reason in answer.reason


@pytest.mark.parametrize(
    ("tile", "shape", "dtypes_", "params"),
    [
        (PositionTile(256, 2, 4), (3, 8, 2, 700, 64), ("bfloat16", "bfloat16"), {"window": 400}),
        (PositionTile(64, 4, 2), (2, 3, 1, 90, 32), ("float16", "float16"), {"interleaved": True}),
        (PositionTile(64, 1, 1), (3, 2, 2, 40, 8), ("float32", "float16"), {"softcap": 2.0}),
        (PositionTile(32, 2, 4), (3, 5, 1, 150, 16), ("float32", "float32"), {}),
    ],
    ids=str,
)
def test_new_positions_attend_in_groups(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, tile: PositionTile, shape: Any, dtypes_: Any, params: Any
) -> None:
    """Sequences of several lengths; one has no earlier position, and one no room, so that its new position is dropped."""
    monkeypatch.setattr(rotary_attention, "choose", lambda runtime, q, cached: tile)
    b, h, kept, capacity, d = shape
    queries, cached = (getattr(dtypes, name) for name in dtypes_)
    lengths = np.array([capacity, 0, capacity // 2][-b:], np.int32)
    keys, values = (rng.uniform(-2, 2, (b, kept, capacity, d)).astype(cached.numpy) for _ in range(2))
    for x in (keys, values):
        for i, length in enumerate(lengths):
            x[i, :, length:] = np.nan
    q, k, v = (rng.uniform(-2, 2, (b, heads, 1, d)) for heads in (h, kept, kept))
    angles = rng.uniform(-3, 3, (b, 1, 1, d // 2 - 2))
    inputs = [keys, values, q, k, v, lengths, np.cos(angles), np.sin(angles)]
    ulps = 48 if cached is queries else 2 * 2**12  # the reference does not round the new rows to float16
    check(device, "rotary_attention", inputs, queries, ulps=ulps, magnitude=1.0, **params)
