"""Attention of decoders: with and without a cache, with a window and a bound of the scores."""

from __future__ import annotations

from typing import NamedTuple

import polyhal as ph
from polyhal import Tensor
from polyhal.nn import KVCache, Rotation
from polyhal.nn import functional as F


class Scores(NamedTuple):
    """How scores are computed and restricted."""

    scale: float | None = None
    window: int | None = None
    softcap: float | None = None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scores: Scores,
    cache: KVCache | None = None,
    layer: int = 0,
    rotation: Rotation | None = None,
) -> Tensor:
    """Return the attention (B, H, T, E) of queries (B, H, T, D) to keys (B, K, S, D) and values (B, K, S, E), causal.

    Without a cache, `mask` includes the window. With one, keys and values are added to it. `q` and `k` are rotated by
    `rotation` first.
    """
    if cache is None and rotation is not None:
        q, k = rotation.of(q), rotation.of(k)
    if cache is None and scores.softcap is None:
        return F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=mask is None, scale=scores.scale, enable_gqa=True
        )
    if cache is None:
        assert scores.softcap is not None
        capped: Tensor = F.capped_attention(q, k, v, scores.softcap, mask, mask is None, scores.scale)
        return capped
    width, missing = v.shape[-1], k.shape[-1] - v.shape[-1]
    if missing:  # the cache has one width
        v = ph.concat([v, ph.zeros((*v.shape[:-1], missing), dtype=v.dtype, device=v.device)], -1)
    out = cache.attend(
        layer, q, k, v, mask, scale=scores.scale, window=scores.window, softcap=scores.softcap, rotation=rotation
    )
    return out[..., :width] if missing else out
