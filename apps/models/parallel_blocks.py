"""Attention and feed-forward networks of the ready models whose heads and hidden units are divided among devices.

`polyhal.parallel.tensor_parallel` finds them through the method `divide` of the undivided layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal import Tensor
from polyhal.models.attention import attend
from polyhal.models.decoder_parts import ACTIVATIONS
from polyhal.nn import KVCache, Module, RotaryEmbedding
from polyhal.nn import functional as F
from polyhal.parallel import ColumnParallelLinear, Group, RowParallelLinear, joined, shares, spread, sub_group

if TYPE_CHECKING:
    from polyhal.models.bert import BertLayer, BertSelfAttention
    from polyhal.models.decoder_layers import Attention, DecoderCall, DecoderFeedForward
    from polyhal.models.gpt import CausalSelfAttention, FeedForward

Weights = Sequence[float] | None
"""Proportions of heads and units per device; None for equal numbers."""


class ParallelCausalSelfAttention(Module):
    """The attention of a GPT: each device has some of the heads. With a cache, heads are joined on the first device."""

    def __init__(self, attention: CausalSelfAttention, group: Group, weights: Weights = None) -> None:
        super().__init__()
        self.group = sub_group(group, attention.heads)
        self.heads = shares(attention.heads, self.group, weights)
        self.dropout = attention.dropout
        width = attention.c_proj.in_features // attention.heads
        sizes = [h * width for h in self.heads]
        self.c_attn = ColumnParallelLinear.of(attention.c_attn, self.group, sizes, blocks=3)
        self.c_proj = RowParallelLinear.of(attention.c_proj, self.group, sizes)
        self.resid_dropout = attention.resid_dropout

    def forward(self, x: Tensor, cache: KVCache | None = None, layer: int = 0, mask: Tensor | None = None) -> Tensor:
        projected = [F.split_projection(p, h) for p, h in zip(self.c_attn(x), self.heads, strict=True)]
        dropout = self.dropout if self.training else 0.0
        if cache is not None:
            out: Any = _attend_cached(projected, self.group, cache, layer, mask)
        else:
            out = [
                F.merge_heads(F.scaled_dot_product_attention(q, k, v, part, dropout, is_causal=part is None))
                for (q, k, v), part in zip(projected, _masks_of_heads(mask, self.group, self.heads), strict=True)
            ]
        result: Tensor = self.resid_dropout(self.c_proj(out))
        return result


class ParallelFeedForward(Module):
    """The feed-forward network of a GPT: each device has some of the hidden units."""

    def __init__(self, network: FeedForward, group: Group, weights: Weights = None) -> None:
        super().__init__()
        sizes = shares(network.c_fc.out_features, group, weights)
        self.c_fc = ColumnParallelLinear.of(network.c_fc, group, sizes)
        self.c_proj = RowParallelLinear.of(network.c_proj, group, sizes)
        self.dropout = network.dropout

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(self.c_proj(self.c_fc(x, "gelu_tanh")))
        return result


class ParallelAttention(Module):
    """The attention of a decoder: each device has some of the heads of keys and values, with the queries that share them."""

    def __init__(self, attention: Attention, group: Group, weights: Weights = None) -> None:
        super().__init__()
        self.group = sub_group(group, attention.kv_heads)
        self.kv_heads = shares(attention.kv_heads, self.group, weights)
        sharing = attention.heads // attention.kv_heads
        self.heads = tuple(h * sharing for h in self.kv_heads)
        wide, narrow = ([h * attention.width for h in heads] for heads in (self.heads, self.kv_heads))
        self.q_proj = ColumnParallelLinear.of(attention.q_proj, self.group, wide)
        self.k_proj = ColumnParallelLinear.of(attention.k_proj, self.group, narrow)
        self.v_proj = ColumnParallelLinear.of(attention.v_proj, self.group, narrow)
        self.o_proj = RowParallelLinear.of(attention.o_proj, self.group, wide)
        self.layer, self.scores, self.near = attention.layer, attention.scores, attention.near
        self.rotates = attention.rotates

    def forward(self, x: Tensor, rotary: RotaryEmbedding | None, call: DecoderCall) -> Tensor:
        xs = spread(x, self.group)
        angles = call.angles.get(self.near) if self.rotates else None
        turns: Sequence[Any] = [None] * self.group.size
        if angles is not None:
            turns = list(zip(*(spread(a, self.group) for a in angles), strict=True))

        def split(projected: Sequence[Tensor], heads: Sequence[int]) -> list[Tensor]:
            return [F.split_heads(p, h) for p, h in zip(projected, heads, strict=True)]

        qs, ks, vs = (
            split(project(xs), heads)
            for project, heads in (
                (self.q_proj, self.heads),
                (self.k_proj, self.kv_heads),
                (self.v_proj, self.kv_heads),
            )
        )
        if rotary is not None:
            qs, ks = (
                [y if t is None else rotary.rotate(y, t) for y, t in zip(ys, turns, strict=True)] for ys in (qs, ks)
            )
        mask = call.masks.get(self.scores.window)
        if call.cache is not None:  # which the first device has, with all heads
            q, k, v = (joined(parts, self.group, axis=1) for parts in (qs, ks, vs))
            out: Any = F.merge_heads(attend(q, k, v, mask, self.scores, call.cache, self.layer))
        else:
            masks = _masks_of_heads(mask, self.group, self.heads)
            parts = zip(qs, ks, vs, masks, strict=True)
            out = [F.merge_heads(attend(q, k, v, m, self.scores)) for q, k, v, m in parts]
        result: Tensor = self.o_proj(out)
        return result


class ParallelGatedFeedForward(Module):
    """The feed-forward network of a decoder: each device has some of the hidden units."""

    def __init__(self, network: DecoderFeedForward, group: Group, weights: Weights = None) -> None:
        super().__init__()
        self.group = group
        sizes = shares(network.up_proj.out_features, group, weights)
        gate = network.gate_proj
        self.gate_proj = None if gate is None else ColumnParallelLinear.of(gate, group, sizes)
        self.up_proj = ColumnParallelLinear.of(network.up_proj, group, sizes)
        self.down_proj = RowParallelLinear.of(network.down_proj, group, sizes)
        self.activation = network.activation

    def forward(self, x: Tensor) -> Tensor:
        xs = spread(x, self.group)
        function = ACTIVATIONS[self.activation]
        if self.gate_proj is None:
            hidden = [function(u) for u in self.up_proj(xs)]
        else:
            hidden = [function(g) * u for g, u in zip(self.gate_proj(xs), self.up_proj(xs), strict=True)]
        out: Tensor = self.down_proj(hidden)
        return out


class ParallelBertAttention(Module):
    """The heads of a BERT's attention, some on each device; the divided `output.dense` consumes them."""

    def __init__(self, attention: BertSelfAttention, group: Group, weights: Weights = None) -> None:
        super().__init__()
        self.group = sub_group(group, attention.heads)
        self.heads = shares(attention.heads, self.group, weights)
        self.dropout = attention.dropout
        width = attention.query.out_features // attention.heads
        self.sizes = [h * width for h in self.heads]
        self.query = ColumnParallelLinear.of(attention.query, self.group, self.sizes)
        self.key = ColumnParallelLinear.of(attention.key, self.group, self.sizes)
        self.value = ColumnParallelLinear.of(attention.value, self.group, self.sizes)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> list[Tensor]:
        xs, masks = spread(x, self.group), _spread_optional(keep, self.group)
        dropout = self.dropout if self.training else 0.0
        projected = [project(xs) for project in (self.query, self.key, self.value)]
        results = []
        for i, mask in enumerate(masks):
            q, k, v = (F.split_heads(p[i], self.heads[i]) for p in projected)
            results.append(F.merge_heads(F.scaled_dot_product_attention(q, k, v, mask, dropout)))
        return results


def divide_bert_layer(layer: BertLayer, group: Group, weights: Weights = None) -> None:
    """Divide a layer of a BERT, in place."""
    parts, wide = layer.attention, layer.intermediate["dense"]
    attention = ParallelBertAttention(parts["self"], group, weights).train(layer.training)
    parts["self"] = attention
    parts["output"].dense = RowParallelLinear.of(parts["output"].dense, attention.group, attention.sizes)
    sizes = shares(wide.out_features, group, weights)
    layer.intermediate["dense"] = ColumnParallelLinear.of(wide, group, sizes)
    setattr(layer.output, "dense", RowParallelLinear.of(layer.output.dense, group, sizes))  # noqa: B010 - another class


def _spread_optional(x: Tensor | None, group: Group) -> Sequence[Tensor | None]:
    return [None] * group.size if x is None else spread(x, group)


def _masks_of_heads(mask: Tensor | None, group: Group, heads: Sequence[int]) -> Sequence[Tensor | None]:
    """Copy a mask (N, 1 or heads, T, S) to each device, restricted to the device's heads."""
    copies = _spread_optional(mask, group)
    if mask is None or mask.shape[1] == 1:
        return copies
    ends = np.cumsum(heads).tolist()
    return [x if x is None else x[:, end - n : end] for x, n, end in zip(copies, heads, ends, strict=True)]


def _attend_cached(
    projected: Sequence[tuple[Tensor, Tensor, Tensor]], group: Group, cache: KVCache, layer: int, mask: Tensor | None
) -> Tensor:
    """Compute the attention (B, T, E) of all heads on the first device, which holds the cache."""
    q, k, v = (joined(parts, group, axis=1) for parts in zip(*projected, strict=True))
    return F.merge_heads(cache.attend(layer, q, k, v, mask))
