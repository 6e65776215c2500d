"""The division of attention among cores, and its workspaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from native_ops import check, check_attention, draw_attention, lower, upload

from polyhal.hal.protocol import Declined


def test_heads_that_keep_every_core_busy(device: Any, rng: Any) -> None:
    """On a CPU, gradients of keys and values are then accumulated directly in the results, not in split-K partials."""
    heads = 2 * min(device.backend.features.compute_units, 16)
    check_attention(device, [*draw_attention(rng, (heads,), 40, 70, 32, 48), None], causal=True)


def test_few_queries_read_keys_and_values_in_place(device: Any, rng: Any) -> None:
    """In text generation, a cache of keys and values of any length is read in place."""
    q, k, v = draw_attention(rng, (2, 3), 1, 700, 32, 32)
    check(device, "attention", [q, k, v, None], causal=True)
    refs = [upload(device, x.astype(np.float32)) for x in (q, k, v)]
    launch, _ = lower(device, "attention", [*refs, None], {"causal": True, "scale": 0.2})
    assert not isinstance(launch, Declined)
    assert sum(launch.workspace) < k.size
