"""Attention with small tiles, and calls that the kernels do not support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check_attention, draw_attention, lower, upload

from polyhal.backends.wgpu.lowering.attention import tiles
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
