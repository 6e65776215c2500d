"""Attention and its gradient: shapes around the tiles, masks, causality, views, fully masked rows.

Few kinds of heads, because each needs three compilations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, lower, upload

from polyhal.backends.wgpu.lowering.attention import tiles
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined

CASES = [
    (((2, 3), 70, 130, 16, 16), False, "bool"),
    (((3,), 65, 33, 16, 16), True, "none"),
    (((2,), 1, 130, 32, 64), False, "float"),
    (((), 30, 40, 7, 18), True, "none"),
]


def _skip_without_subgroups(device: Any) -> None:
    """Skip, because compilation is slow and other tests cover the kernels without subgroup operations."""
    if not device.backend.features.subgroups:
        pytest.skip("compiled for devices with subgroups only, to save time")


def _both(device: Any, inputs: list[Any], dtype: dtypes.DType = dtypes.float32, **params: Any) -> None:
    check(device, "attention", inputs, dtype, ulps=32, **params)
    wide = [x if x is None or x.dtype == bool else x.astype(dtype.numpy).astype(np.float64) for x in inputs]
    out, lse = OPS["attention"].reference(*wide, **params)
    g = np.random.default_rng(3).uniform(-1, 1, out.shape)
    saved = [out, np.asarray(lse).astype(np.float32)]
    check(device, "attention_grad", [g, *inputs, *saved], dtype, ulps=64, **params)


def _draw(rng: Any, lead: tuple[int, ...], t: int, s: int, d: int, e: int) -> list[Any]:
    return [rng.uniform(-2, 2, (*lead, t, d)), rng.uniform(-2, 2, (*lead, s, d)), rng.uniform(-1, 1, (*lead, s, e))]


@pytest.mark.parametrize(("shape", "causal", "kind"), CASES, ids=str)
def test_shapes_and_masks(device: Any, rng: Any, shape: Any, causal: bool, kind: str) -> None:
    lead, t, s, _, _ = shape
    keep = rng.random((t, s)) < 0.7
    keep[:, 0] = True
    mask = {"none": None, "bool": keep, "float": rng.uniform(-1, 1, (*lead, 1, s))}[kind]
    _both(device, [*_draw(rng, *shape), mask], causal=causal)


def test_half_precision(device: Any, rng: Any) -> None:
    _skip_without_subgroups(device)
    inputs = [*_draw(rng, (2,), 40, 70, 16, 16), None]
    _both(device, inputs, dtypes.float16, causal=True)
    check(device, "attention", inputs, dtypes.bfloat16, ulps=32, causal=True)


def test_heads_as_views(device: Any, rng: Any) -> None:
    """Queries, keys and values of a transformer: three slices of one tensor with interleaved heads."""
    _skip_without_subgroups(device)
    together = rng.uniform(-1, 1, (2, 50, 3, 3, 16))
    q, k, v = (together[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    _both(device, [q, k, v, None], causal=True)
    q, k, v = (rng.uniform(-1, 1, (3, 5, 20, 2, 16)).transpose(0, 3, 1, 2, 4)[:, :, ::2] for _ in range(3))
    check(device, "attention", [q, k, v, None], ulps=32, causal=False)


def test_fully_masked_rows(device: Any, rng: Any) -> None:
    """Their result is 0, the logsumexp -inf, and the gradient 0."""
    mask = np.ones((9, 20), bool)
    mask[[0, 5]] = False
    _both(device, [*_draw(rng, (2,), 9, 20, 16, 16), mask], causal=False)
    # More queries than keys: the first queries precede every key.
    _both(device, [*_draw(rng, (2,), 20, 9, 16, 16), None], causal=True)


def test_rows_with_one_large_number_added(device: Any, rng: Any) -> None:
    q, k, v = _draw(rng, (2,), 9, 20, 8, 8)
    mask = np.where(np.arange(9)[:, None] % 3 == 0, -1e9, rng.choice([0.0, -1e9], (9, 20)))
    _both(device, [q * 0, k, v, mask], causal=False)


def test_large_scores_do_not_overflow(device: Any, rng: Any) -> None:
    q, k, v = _draw(rng, (2,), 30, 90, 16, 16)
    check(device, "attention", [q * 100, k * 100, v, None], ulps=20000, causal=True)


def test_small_tiles(device: Any, rng: Any, monkeypatch: Any) -> None:
    """Tiles for devices with little workgroup memory."""
    if device.backend.features.cpu:
        pytest.skip("the kernels of GPUs")
    monkeypatch.setattr(tiles, "FORWARD", tiles.FORWARD[-1:])
    monkeypatch.setattr(tiles, "BACKWARD", tiles.BACKWARD[-1:])
    _both(device, [*_draw(rng, (2,), 70, 90, 16, 16), None], causal=True)


def test_unsupported_calls_are_declined(device: Any, rng: Any) -> None:
    q, k, v = (x.astype(np.float32) for x in _draw(rng, (2,), 5, 6, 8, 6))
    wide = np.zeros((2, 5, 200), np.float32)
    for inputs, reason in (([wide, wide, q], "200 features"), ([q, k, v.swapaxes(1, 2)], "not contiguous")):
        refs = [upload(device, x) for x in inputs]
        answer, _ = lower(device, "attention", [*refs, None], {"causal": False})
        assert isinstance(answer, Declined)
        assert reason in answer.reason
