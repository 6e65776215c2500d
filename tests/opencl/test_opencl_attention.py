"""Attention against its reference: shapes near tile sizes, masks, causality, views, fully masked rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, check_placed, lower, upload

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined
from polyhal.hal.settings.precision import float32_matmul_precision

SHAPES = [
    ((), 3, 4, 5, 5),
    ((2, 3), 70, 70, 32, 32),
    ((2,), 1, 130, 64, 64),
    ((3,), 65, 33, 16, 40),
    ((2,), 100, 257, 80, 130),
]


def _both(device: Any, inputs: list[Any], dtype: dtypes.DType = dtypes.float32, **params: Any) -> None:
    check(device, "attention", inputs, dtype, ulps=32, **params)
    wide = [x if x is None or x.dtype == bool else x.astype(dtype.numpy).astype(np.float64) for x in inputs]
    out, lse = OPS["attention"].reference(*wide, **params)
    g = np.random.default_rng(3).uniform(-1, 1, out.shape)
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    saved = [out, np.asarray(lse).astype(statistic)]
    check(device, "attention_grad", [g, *inputs, *saved], dtype, ulps=64, **params)


def _draw(rng: Any, lead: tuple[int, ...], t: int, s: int, d: int, e: int) -> list[Any]:
    return [rng.uniform(-2, 2, (*lead, t, d)), rng.uniform(-2, 2, (*lead, s, d)), rng.uniform(-1, 1, (*lead, s, e))]


# Each kind of mask is a compilation.
@pytest.mark.parametrize(
    ("shape", "causal", "kind"),
    [
        *((shape, causal, "none") for shape in SHAPES for causal in (False, True)),
        *((shape, causal, kind) for shape in SHAPES[1:4:2] for causal, kind in ((False, "bool"), (True, "float"))),
    ],
    ids=str,
)
def test_shapes_and_masks(device: Any, rng: Any, shape: Any, causal: bool, kind: str) -> None:
    lead, t, s, _, _ = shape
    keep = rng.random((t, s)) < 0.7
    keep[:, 0] = True
    mask = {"none": None, "bool": keep, "float": rng.uniform(-1, 1, (*lead, 1, s))}[kind]
    _both(device, [*_draw(rng, *shape), mask], causal=causal)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
def test_dtypes(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    _both(device, [*_draw(rng, (2,), 40, 70, 24, 24), None], dtype, causal=True)


def test_high_precision_is_as_exact(device: Any, rng: Any) -> None:
    """The call is large enough that devices with matrix units split float32 into bfloat16 terms."""
    with float32_matmul_precision("high"):
        _both(device, [*_draw(rng, (1,), 1024, 1024, 64, 64), None], causal=True)


def test_heads_as_views(device: Any, rng: Any) -> None:
    q, k, v = (rng.uniform(-1, 1, (2, 50, 3, 16)).transpose(0, 2, 1, 3) for _ in range(3))
    _both(device, [q, k, v, None], causal=True)


def test_heads_that_keep_every_core_busy(device: Any, rng: Any) -> None:
    """On a CPU, gradients of keys and values are then accumulated directly in the results, not in split-K partials."""
    heads = 2 * min(device.backend.features.compute_units, 16)
    _both(device, [*_draw(rng, (heads,), 40, 70, 32, 48), None], causal=True)


def test_few_queries_read_keys_and_values_in_place(device: Any, rng: Any) -> None:
    """In text generation, a cache of keys and values of any length is read in place."""
    q, k, v = _draw(rng, (2, 3), 1, 700, 32, 32)
    check(device, "attention", [q, k, v, None], causal=True)
    refs = [upload(device, x.astype(np.float32)) for x in (q, k, v)]
    launch, _ = lower(device, "attention", [*refs, None], {"causal": True, "scale": 0.2})
    assert not isinstance(launch, Declined)
    assert sum(launch.workspace) < k.size


def test_fully_masked_rows(device: Any, rng: Any) -> None:
    """Fully masked rows return 0, with gradients of 0."""
    mask = np.ones((9, 20), bool)
    mask[[0, 5]] = False
    _both(device, [*_draw(rng, (2,), 9, 20, 8, 8), mask], causal=False)
    # More queries than keys: the first ones come before every key.
    _both(device, [*_draw(rng, (2,), 20, 9, 8, 8), None], causal=True)


def test_rows_with_one_large_number_added(device: Any, rng: Any) -> None:
    q, k, v = _draw(rng, (2,), 9, 20, 8, 8)
    mask = np.where(np.arange(9)[:, None] % 3 == 0, -1e9, rng.choice([0.0, -1e9], (9, 20)))
    _both(device, [q * 0, k, v, mask], causal=False)


def test_large_scores_do_not_overflow(device: Any, rng: Any) -> None:
    q, k, v = _draw(rng, (2,), 30, 90, 16, 16)
    check(device, "attention", [q * 100, k * 100, v, None], ulps=20000, causal=False)


@pytest.mark.parametrize("features", [(32, 32), (13, 20)], ids=str)
def test_results_are_written_in_place(device: Any, rng: Any, features: tuple[int, int]) -> None:
    inputs = [x.astype(np.float32) for x in _draw(rng, (2, 3), 40, 40, *features)]
    check_placed(device, "attention", [*inputs, None], causal=True, scale=0.3)
    out, lse = OPS["attention"].reference(*inputs, None, causal=True, scale=0.3)
    # The saved result is read in place too.
    saved = np.ascontiguousarray(out.astype(np.float32).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    g = rng.uniform(-1, 1, out.shape).astype(np.float32)
    check_placed(device, "attention_grad", [g, *inputs, None, saved, lse.astype(np.float32)], causal=True, scale=0.3)
