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
    if enable_gqa and query.ndim > 2 and key.ndim > 2 and query.shape[-3] != key.shape[-3]:
        return _grouped(query, key, value, attn_mask, dropout_p, is_causal, scale, generator)
    query, key, value = _same_lead(query, key, value)
    causal = is_causal
    if is_causal and query.shape[-2] != key.shape[-2]:
        # The op aligns the last query with the last key, this function the first ones.
        causal = False
        attn_mask = restricted(attn_mask, _first_aligned(query, key))
    if dropout_p == 0:
        out: Tensor = _attention(query, key, value, attn_mask, causal, scale)[0]
        return out
    weights = attention_weights(query, key, attn_mask, causal, scale)
    return ops.matmul(dropout(weights, dropout_p, True, generator=generator), value)


def _grouped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    generator: Generator | None,
) -> Tensor:
    """Attend with neighbouring query heads that share keys as an axis of its own, along which keys and values are broadcast."""
    heads = query.shape[-3]
    key, value = (share_heads(x, heads) for x in (key, value))
    if mask is not None:
        mask = group_mask(mask, heads, key.shape[-4])
    out = scaled_dot_product_attention(
        group_heads(query, key.shape[-4]), key, value, mask, dropout_p, is_causal, scale, generator=generator
    )
    result: Tensor = ops.reshape(out, (*out.shape[:-4], heads, *out.shape[-2:]))
    return result


def share_heads(x: Tensor, heads: int) -> Tensor:
    """Broadcast keys or values (..., kept, S, D) for `heads` query heads: (..., kept, heads / kept, S, D), a view.

    Raises ShapeError.
    """
    if x.ndim < 3 or heads % x.shape[-3]:
        problem = f"{heads} query heads for keys or values {x.shape}"
        raise ShapeError(message("scaled_dot_product_attention", problem, expected="a multiple of their heads"))
    lead, rest = x.shape[:-2], x.shape[-2:]
    shared: Tensor = ops.broadcast_to(ops.unsqueeze(x, -3), (*lead, heads // lead[-1], *rest))
    return shared


def group_heads(x: Tensor, kept: int) -> Tensor:
    """Return queries (..., heads, T, D) as (..., kept, heads / kept, T, D)."""
    grouped: Tensor = ops.reshape(x, (*x.shape[:-3], kept, x.shape[-3] // kept, *x.shape[-2:]))
    return grouped


def group_mask(mask: Tensor, heads: int, kept: int) -> Tensor:
    """Return a mask that broadcasts to (..., heads, T, S) as one that broadcasts to (..., kept, heads / kept, T, S)."""
    if mask.ndim < 3:
        return mask
    if mask.shape[-3] == heads:
        return group_heads(mask, kept)
    grouped: Tensor = ops.unsqueeze(mask, -3)
    return grouped


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


def capped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    softcap: float,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attend with scores x replaced by `softcap * tanh(x / softcap)` before masks. Source: Gemma Team, arXiv:2408.00118.

    Neighbouring query heads (axis -3) may share a head of keys and values.
    """
    heads, kept = query.shape[-3], key.shape[-3]
    shape = (*query.shape[:-1], value.shape[-1])
    if heads != kept:
        query, key, value = group_heads(query, kept), share_heads(key, heads), share_heads(value, heads)
        mask = None if mask is None else group_mask(mask, heads, kept)
    out: Tensor = ops.matmul(attention_weights(query, key, mask, causal, scale, softcap), value)
    return ops.reshape(out, shape)


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Return the probabilities (..., T, S), for dropout or as a result; zeros in a row in which all is masked."""
    scores = ops.matmul(query, ops.transpose(key)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if softcap is not None:
        scores = ops.tanh(scores / softcap) * softcap
    if causal:
        mask = restricted(mask, _first_aligned(query, key))
    if mask is None:
        return ops.softmax(scores, -1)
    scores = ops.where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    some = ops.any(ops.not_equal(scores, -math.inf), -1, True)
    return ops.where(some, ops.softmax(ops.where(some, scores, 0.0), -1), 0.0)


def _first_aligned(query: Tensor, key: Tensor) -> Tensor:
    """True where key j <= query i."""
    return ops.tril(ops.full((query.shape[-2], key.shape[-2]), True, dtypes.bool_, device=query.device))


def restricted(mask: Tensor | None, keep: Tensor) -> Tensor:
    """Return `mask`, further restricted to positions of `keep` that are True."""
    if mask is None:
        return keep
    if mask.dtype is dtypes.bool_:
        return ops.logical_and(mask, keep)
    return ops.where(keep, mask, -math.inf)
