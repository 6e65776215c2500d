"""Kernels of text generation as GPUs run them, with groups of several work-items, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.backends.opencl_c.lowering.attention import decode
from polyhal.backends.opencl_c.lowering.attention.decode import DecodeTile
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


def test_tokens_are_drawn_in_groups(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_tokens, "group_size", lambda runtime: 16)
    for sample in OPS["sample_tokens"].tests.samples(np.random.default_rng(5)):
        arrays = [x.astype(np.float32) if x.dtype == np.float64 else x for x in sample.inputs]
        check(device, "sample_tokens", arrays)
