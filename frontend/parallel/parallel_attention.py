"""`nn.MultiheadAttention` with its heads divided among devices."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.nn import functional as F
from polyhal.nn.attention import MultiheadAttention
from polyhal.nn.functional.multihead import attend, merge_heads, split_heads, split_projection
from polyhal.parallel.group import Group
from polyhal.parallel.parallel_layers import RowParallelLinear, spread
from polyhal.parallel.sharded_module import ShardedModule, ShardLayout, Weights, shares, sub_group
from polyhal.tensor import Tensor


class ParallelMultiheadAttention(ShardedModule):
    """`nn.MultiheadAttention` of one width, without learned extra keys: each device has some of the heads."""

    def __init__(self, attention: MultiheadAttention, group: Group, weights: Weights = None) -> None:
        super().__init__(sub_group(group, attention.num_heads))
        assert attention.in_proj_weight is not None
        self.batch_first = attention.batch_first
        self.dropout = attention.dropout
        self.heads = shares(attention.num_heads, self.group, weights)
        sizes = tuple(h * attention.head_dim for h in self.heads)
        self.add_shards("in_proj_weight", attention.in_proj_weight, ShardLayout(0, sizes, 3))
        if attention.in_proj_bias is not None:
            self.add_shards("in_proj_bias", attention.in_proj_bias, ShardLayout(0, sizes, 3))
        self.out_proj = RowParallelLinear.of(attention.out_proj, self.group, sizes)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """See nn.MultiheadAttention. Raises NotImplementedError for attention weights, and for masks of each head."""
        if need_weights or (attn_mask is not None and attn_mask.ndim == 3) or query.ndim == 2:
            raise NotImplementedError(
                "divided heads do not support attention weights, masks per head or unbatched inputs; pass need_weights=False"
            )
        group = self.group
        inputs = {id(x): x if self.batch_first else x.transpose(0, 1) for x in (query, key, value)}
        everywhere = {i: spread(x, group) for i, x in inputs.items()}
        padding = _spread_optional(key_padding_mask, group)
        masks = _spread_optional(attn_mask, group)
        biases: Sequence[Tensor | None] = self.shards("in_proj_bias") or [None] * group.size
        parts = []
        for i, (weight, bias) in enumerate(zip(self.shards("in_proj_weight"), biases, strict=True)):
            q, k, v = (everywhere[id(x)][i] for x in (query, key, value))
            projected = _projected(q, k, v, weight, bias, self.heads[i])
            out, _ = attend(
                *projected,
                None,
                None,
                False,
                self.dropout if self.training else 0.0,
                padding[i],
                False,
                masks[i],
                is_causal,
            )
            parts.append(merge_heads(out))
        result: Tensor = self.out_proj(parts)
        return result if self.batch_first else result.transpose(0, 1), None


def _projected(
    q: Tensor, k: Tensor, v: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values (N, heads, length, width) of a device's heads."""
    if q is k and k is v:
        return split_projection(F.linear(q, weight, bias), heads)
    rows = weight.shape[0] // 3
    parts = [
        split_heads(
            F.linear(x, weight[n * rows : (n + 1) * rows], None if bias is None else bias[n * rows : (n + 1) * rows]),
            heads,
        )
        for n, x in enumerate((q, k, v))
    ]
    return parts[0], parts[1], parts[2]


def _spread_optional(x: Tensor | None, group: Group) -> Sequence[Tensor | None]:
    return [None] * group.size if x is None else spread(x, group)
