"""Attention and feed-forward networks of the ready models whose heads and hidden units are divided among devices.

`polyhal.parallel.tensor_parallel` finds them through the method `divide` of the undivided layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal import Tensor
from polyhal.nn import KVCache, Module, RotaryEmbedding
from polyhal.nn import functional as F
from polyhal.parallel import ColumnParallelLinear, Group, RowParallelLinear, joined, shares, spread, sub_group

if TYPE_CHECKING:
    from polyhal.models.bert import BertLayer, BertSelfAttention
    from polyhal.models.gpt import CausalSelfAttention, FeedForward
    from polyhal.models.llama import LlamaAttention, SwiGLU

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


class ParallelLlamaAttention(Module):
    """The attention of a Llama: each device has some of the heads of keys and values, with the queries that share them."""

    def __init__(self, attention: LlamaAttention, group: Group, weights: Weights = None) -> None:
        super().__init__()
        self.group = sub_group(group, attention.kv_heads)
        self.kv_heads = shares(attention.kv_heads, self.group, weights)
        sharing = attention.heads // attention.kv_heads
        self.heads = tuple(h * sharing for h in self.kv_heads)
        width = attention.o_proj.in_features // attention.heads
        wide, narrow = [h * width for h in self.heads], [h * width for h in self.kv_heads]
        self.q_proj = ColumnParallelLinear.of(attention.q_proj, self.group, wide)
        self.k_proj = ColumnParallelLinear.of(attention.k_proj, self.group, narrow)
        self.v_proj = ColumnParallelLinear.of(attention.v_proj, self.group, narrow)
        self.o_proj = RowParallelLinear.of(attention.o_proj, self.group, wide)

    def forward(
        self,
        x: Tensor,
        rotary: RotaryEmbedding,
        angles: tuple[Tensor, Tensor],
        cache: KVCache | None = None,
        layer: int = 0,
        mask: Tensor | None = None,
    ) -> Tensor:
        xs = spread(x, self.group)
        turns = list(zip(*(spread(a, self.group) for a in angles), strict=True))
        projected = []
        for i, (q, k, v) in enumerate(zip(self.q_proj(xs), self.k_proj(xs), self.v_proj(xs), strict=True)):
            rotated = rotary.rotate(F.split_heads(q, self.heads[i]), turns[i])
            projected.append(
                (
                    rotated,
                    rotary.rotate(F.split_heads(k, self.kv_heads[i]), turns[i]),
                    F.split_heads(v, self.kv_heads[i]),
                )
            )
        if cache is not None:
            out: Any = _attend_cached(projected, self.group, cache, layer, mask)
        else:
            out = [
                F.merge_heads(F.scaled_dot_product_attention(q, k, v, part, is_causal=part is None, enable_gqa=True))
                for (q, k, v), part in zip(projected, _masks_of_heads(mask, self.group, self.heads), strict=True)
            ]
        result: Tensor = self.o_proj(out)
        return result


class ParallelSwiGLU(Module):
    """The feed-forward network of a Llama: each device has some of the hidden units."""

    def __init__(self, network: SwiGLU, group: Group, weights: Weights = None) -> None:
        super().__init__()
        self.group = group
        sizes = shares(network.gate_proj.out_features, group, weights)
        self.gate_proj = ColumnParallelLinear.of(network.gate_proj, group, sizes)
        self.up_proj = ColumnParallelLinear.of(network.up_proj, group, sizes)
        self.down_proj = RowParallelLinear.of(network.down_proj, group, sizes)

    def forward(self, x: Tensor) -> Tensor:
        xs = spread(x, self.group)
        hidden = [F.silu(g) * u for g, u in zip(self.gate_proj(xs), self.up_proj(xs), strict=True)]
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
