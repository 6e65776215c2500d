"""Attention in several heads, with its projections."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.creation import zeros
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.returns import Returns, returns
from polyhal.nn.functional.attention import attention_weights, scaled_dot_product_attention
from polyhal.nn.functional.dropout import dropout
from polyhal.nn.functional.linear import linear
from polyhal.tensor import Tensor


@returns(Returns.EITHER)
def split_heads(x: Tensor, heads: int) -> Tensor:
    """Divide the last axis among heads: (B, T, E) to (B, heads, T, E/heads)."""
    batch, length, width = x.shape
    return ops.reshape(x, (batch, length, heads, width // heads)).transpose(1, 2)


@returns(Returns.EITHER)
def split_projection(x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Divide a joint projection (B, T, 3*E) into queries, keys and values (B, heads, T, E/heads).

    Heads are separated before queries, keys and values, so that the backward pass writes the gradient of each in one copy.
    """
    batch, length, width = x.shape
    joint = ops.reshape(x, (batch, length, 3, heads, width // (3 * heads)))
    q, k, v = (ops.squeeze(part, 2).transpose(1, 2) for part in joint.split(1, 2))
    return q, k, v


@returns(Returns.EITHER)
def merge_heads(x: Tensor) -> Tensor:
    """Concatenate the results of heads: (B, H, T, D) to (B, T, H*D). The inverse of `split_heads`."""
    batch, heads, length, width = x.shape
    return ops.reshape(x.transpose(1, 2), (batch, length, heads * width))


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of (L, N, E) to (S, N, kdim), or without N; see `nn.MultiheadAttention`.

    `static_k` and `static_v` (N * num_heads, S, E / num_heads) replace the projected keys and values. True in a mask
    FORBIDS a position. Source: Vaswani et al., arXiv:1706.03762. Raises ShapeError, and ValueError without the
    weight that projects the inputs.
    """
    if query.ndim not in (2, 3) or query.shape[-1] != embed_dim_to_check:
        expected = f"(L, N, {embed_dim_to_check}) or (L, {embed_dim_to_check})"
        raise ShapeError(message("multi_head_attention_forward", f"query {query.shape}", expected=expected))
    batched = query.ndim == 3
    if not batched:
        query, key, value = unsqueezed(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    else:
        query, key, value = swapped(query, key, value)
    if use_separate_proj_weight:
        weights: Sequence[Tensor | None] | Tensor = (q_proj_weight, k_proj_weight, v_proj_weight)
    elif in_proj_weight is None:
        raise ValueError(message("multi_head_attention_forward", "in_proj_weight is None", expected="a weight"))
    else:
        weights = in_proj_weight
    q, k, v = project(query, key, value, weights, in_proj_bias, num_heads)
    if static_k is not None:
        k = ops.reshape(static_k, (q.shape[0], num_heads, *static_k.shape[1:]))
    if static_v is not None:
        v = ops.reshape(static_v, (q.shape[0], num_heads, *static_v.shape[1:]))
    out, probabilities = attend(
        q,
        k,
        v,
        bias_k,
        bias_v,
        add_zero_attn,
        dropout_p if training else 0.0,
        key_padding_mask,
        need_weights,
        attn_mask,
        is_causal,
    )
    out = linear(merge_heads(out), out_proj_weight, out_proj_bias)
    if probabilities is not None and average_attn_weights:
        probabilities = ops.mean(probabilities, 1)
    if not batched:
        return out[0], None if probabilities is None else probabilities[0]
    return out.transpose(0, 1), probabilities


def swapped(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(L, N, E) to (N, L, E). Identical inputs stay identical, so that one projection serves them."""
    turned = {id(x): x.transpose(0, 1) for x in tensors}
    query, key, value = (turned[id(x)] for x in tensors)
    return query, key, value


def unsqueezed(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(L, E) to (1, L, E). Identical inputs stay identical."""
    batched = {id(x): x[None] for x in tensors}
    query, key, value = (batched[id(x)] for x in tensors)
    return query, key, value


def project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor | Sequence[Tensor | None],
    bias: Tensor | None,
    heads: int,
) -> Sequence[Tensor]:
    """Queries, keys and values (N, heads, length, width of a head), by one weight (3 * E, E) or three."""
    if isinstance(weights, Tensor):
        if query is key and key is value:
            return split_projection(linear(query, weights, bias), heads)
        width = weights.shape[0] // 3
        separate: Sequence[Tensor | None] = [weights[i * width : (i + 1) * width] for i in range(3)]
    else:
        separate = weights
    results = []
    for i, (x, weight) in enumerate(zip((query, key, value), separate, strict=True)):
        if weight is None:
            raise ValueError(message("multi_head_attention_forward", "a weight is None", expected="three weights"))
        width = weight.shape[0]
        results.append(
            split_heads(linear(x, weight, None if bias is None else bias[i * width : (i + 1) * width]), heads)
        )
    return results


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    key_padding_mask: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    is_causal: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return results of the heads (N, H, L, D), and their probabilities (N, H, L, S) if these are needed."""
    batch, heads, length, width = q.shape
    span = k.shape[2]
    extra = 0
    if bias_k is not None and bias_v is not None:
        k, v = (
            ops.concat([x, ops.broadcast_to(ops.reshape(bias, (1, heads, 1, width)), (batch, heads, 1, width))], 2)
            for x, bias in ((k, bias_k), (v, bias_v))
        )
        extra += 1
    if add_zero_attn:
        zero = zeros((batch, heads, 1, width), q.dtype, q.device)
        k, v = ops.concat([k, zero], 2), ops.concat([v, zero], 2)
        extra += 1
    keep = _allowed(attn_mask, key_padding_mask, (batch, heads))
    if is_causal and attn_mask is None and extra:
        later = ops.tril(ops.full((length, span), True, dtypes.bool_, device=q.device))
        keep = later if keep is None else _both(keep, later)
        is_causal = False
    if keep is not None and extra:
        neutral = True if keep.dtype is dtypes.bool_ else 0.0
        keep = ops.concat([keep, ops.full((*keep.shape[:-1], extra), neutral, keep.dtype, device=q.device)], -1)
    is_causal = is_causal and attn_mask is None
    if need_weights:
        weights = attention_weights(q, k, keep, is_causal)
        return ops.matmul(dropout(weights, dropout_p, dropout_p > 0), v), weights
    return scaled_dot_product_attention(q, k, v, keep, dropout_p, is_causal), None


def _allowed(attn_mask: Tensor | None, padding: Tensor | None, sizes: tuple[int, int]) -> Tensor | None:
    """Both masks as one for `scaled_dot_product_attention`, broadcastable to (N, H, L, S): True allows, numbers are added."""
    masks = []
    if attn_mask is not None:
        masks.append(ops.reshape(attn_mask, (*sizes, *attn_mask.shape[1:])) if attn_mask.ndim == 3 else attn_mask)
    if padding is not None:
        masks.append(ops.reshape(padding, (padding.shape[0], 1, 1, padding.shape[1])))
    kept = [ops.logical_not(m) if m.dtype is dtypes.bool_ else m for m in masks]
    if len(kept) < 2:
        return kept[0] if kept else None
    return _both(*kept)


def _both(a: Tensor, b: Tensor) -> Tensor:
    """Combine two masks: True allows, and numbers are added."""
    if a.dtype is dtypes.bool_ and b.dtype is dtypes.bool_:
        return ops.logical_and(a, b)
    if a.dtype is dtypes.bool_:
        a, b = b, a
    return ops.where(b, a, -math.inf) if b.dtype is dtypes.bool_ else a + b
