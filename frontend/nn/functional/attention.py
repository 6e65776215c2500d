"""Attention."""

from __future__ import annotations

import math

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn.functional.activation import dropout
from polyhal.random import Generator
from polyhal.tensor import Tensor

_attention = FUNCTIONS["attention"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """`softmax(q k^T * scale + mask) v`: (..., T, D), (..., S, D), (..., S, E) to (..., T, E).

    Source: Vaswani et al., arXiv:1706.03762.

    `attn_mask` broadcasts to (..., T, S): bool keeps where True, floats are added. With `is_causal` query i sees keys
    0 to i. `scale` defaults to 1/sqrt(D). Dropout acts on the probabilities whenever `dropout_p` is not 0.
    """
    causal = is_causal
    if is_causal and query.shape[-2] != key.shape[-2]:
        # The op aligns the last query with the last key, this function the first ones.
        causal = False
        attn_mask = _masked(attn_mask, _first_aligned(query, key))
    if dropout_p == 0:
        out: Tensor = _attention(query, key, value, attn_mask, causal, scale)[0]
        return out
    return ops.matmul(
        dropout(attention_weights(query, key, attn_mask, causal, scale), dropout_p, True, generator), value
    )


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """The probabilities (..., T, S), for dropout or as a result."""
    scores = ops.matmul(query, ops.transpose(key)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if causal:
        mask = _masked(mask, _first_aligned(query, key))
    if mask is not None:
        scores = ops.where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    return ops.softmax(scores, -1)


def _first_aligned(query: Tensor, key: Tensor) -> Tensor:
    """True where key j <= query i."""
    return ops.tril(ops.full((query.shape[-2], key.shape[-2]), True, dtypes.bool_, device=query.device))


def _masked(mask: Tensor | None, keep: Tensor) -> Tensor:
    """`mask`, further restricted to positions of `keep` that are True."""
    if mask is None:
        return keep
    if mask.dtype is dtypes.bool_:
        return ops.logical_and(mask, keep)
    return ops.where(keep, mask, -math.inf)
