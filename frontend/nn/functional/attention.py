"""Attention."""

from __future__ import annotations

import math

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import broadcast_shapes
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn.functional.dropout import dropout
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
    enable_gqa: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`softmax(q k^T * scale + mask) v`: (..., T, D), (..., S, D), (..., S, E) to (..., T, E).

    Source: Vaswani et al., arXiv:1706.03762.

    `attn_mask` broadcasts to (..., T, S): bool keeps where True, floats are added. With `is_causal` query i attends to keys
    0 to i. `scale` defaults to 1/sqrt(D). Dropout acts on the probabilities whenever `dropout_p` is not 0. A row in which
    all is masked returns 0. With `enable_gqa` neighbouring query heads (axis -3) share a head of keys and values (Ainslie et
    al., arXiv:2305.13245). Raises ShapeError.

    >>> q = polyhal.ones(1, 2, 5, 8)
    >>> polyhal.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (1, 2, 5, 8)
    """
    if enable_gqa:
        key, value = (repeat_heads(x, query.shape[-3]) for x in (key, value))
    query, key, value = _same_lead(query, key, value)
    causal = is_causal
    if is_causal and query.shape[-2] != key.shape[-2]:
        # The op aligns the last query with the last key, this function the first ones.
        causal = False
        attn_mask = _masked(attn_mask, _first_aligned(query, key))
    if dropout_p == 0:
        out: Tensor = _attention(query, key, value, attn_mask, causal, scale)[0]
        return out
    weights = attention_weights(query, key, attn_mask, causal, scale)
    return ops.matmul(dropout(weights, dropout_p, True, generator=generator), value)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each head (axis -3) as often as needed for `heads` in all. Raises ShapeError."""
    if x.ndim < 3 or heads % x.shape[-3]:
        problem = f"{heads} query heads for keys or values {x.shape}"
        raise ShapeError(message("scaled_dot_product_attention", problem, expected="a multiple of their heads"))
    times = heads // x.shape[-3]
    if times == 1:
        return x
    lead, rest = x.shape[:-2], x.shape[-2:]
    repeated = ops.broadcast_to(ops.unsqueeze(x, -3), (*lead, times, *rest))
    return ops.reshape(repeated, (*lead[:-1], heads, *rest))


def _same_lead(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Broadcast the axes before the last two."""
    q, k, v = (x.shape[:-2] for x in (query, key, value))
    if q == k == v:
        return query, key, value
    lead = broadcast_shapes(q, k, v)
    query, key, value = (
        x if x.shape[:-2] == lead else ops.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (query, key, value)
    )
    return query, key, value


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Return the probabilities (..., T, S), for dropout or as a result; zeros in a row in which all is masked."""
    scores = ops.matmul(query, ops.transpose(key)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if causal:
        mask = _masked(mask, _first_aligned(query, key))
    if mask is None:
        return ops.softmax(scores, -1)
    scores = ops.where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    some = ops.any(ops.not_equal(scores, -math.inf), -1, True)
    return ops.where(some, ops.softmax(ops.where(some, scores, 0.0), -1), 0.0)


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
