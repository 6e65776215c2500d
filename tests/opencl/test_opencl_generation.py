"""Kernels of text generation as GPUs run them, with groups of several work-items, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.backends.opencl_c.lowering.attention import decode, rotary_attention
from polyhal.backends.opencl_c.lowering.attention.decode import DecodeTile
from polyhal.backends.opencl_c.lowering.attention.rotary_attention import StepTile
from polyhal.backends.opencl_c.lowering.rowwise import sample_tokens
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS


@pytest.mark.parametrize(
    ("tile", "shape", "dtype", "params"),
    [
        (DecodeTile(4, 4, 8, 4, 64, 8), (3, 4, 2, 1, 300, 24, 16), dtypes.float32, {"window": 70, "softcap": 3.0}),
        (DecodeTile(4, 4, 4, 2, 32, 8), (2, 6, 1, 3, 200, 32, 32), dtypes.bfloat16, {"window": 9}),
        (DecodeTile(1, 8, 4, 2, 32, 8), (2, 3, 3, 5, 100, 5, 7), dtypes.float16, {"softcap": 2.0}),
    ],
    ids=str,
)
def test_cached_attention_in_groups(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, tile: DecodeTile, shape: Any, dtype: Any, params: Any
) -> None:
    monkeypatch.setattr(decode, "choose", lambda runtime, call: tile)
    b, h, kept, t, capacity, d, e = shape
    q, keys, values = (rng.uniform(-2, 2, s) for s in ((b, h, t, d), (b, kept, capacity, d), (b, kept, capacity, e)))
    lengths = np.array([0, capacity - t, capacity // 3][:b], np.int32)
    check(device, "cached_attention", [q, keys, values, lengths], dtype, ulps=48, magnitude=1.0, **params)


@pytest.mark.parametrize(
    ("tile", "shape", "dtypes_", "params"),
    [
        (StepTile(4, 4, 8, 2, 2, 1), (3, 6, 2, 150, 16), ("float32", "float32"), {"window": 37}),
        (StepTile(8, 4, 4, 4, 4, 1), (2, 4, 1, 90, 24), ("bfloat16", "bfloat16"), {"interleaved": True}),
        (StepTile(8, 2, 4, 1, 1, 1), (3, 2, 2, 40, 16), ("float32", "float16"), {"softcap": 2.0}),
    ],
    ids=str,
)
def test_new_positions_attend_in_groups(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, tile: StepTile, shape: Any, dtypes_: Any, params: Any
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


def test_tokens_are_drawn_in_groups(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_tokens, "group_size", lambda runtime: 16)
    for sample in OPS["sample_tokens"].tests.samples(np.random.default_rng(5)):
        arrays = [x.astype(np.float32) if x.dtype == np.float64 else x for x in sample.inputs]
        check(device, "sample_tokens", arrays)
