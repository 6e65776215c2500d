"""Attention, feed-forward networks and experts of a `Decoder`, and a layer of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polyhal as ph
from polyhal import Tensor
from polyhal.hal import dtypes
from polyhal.models.attention import Scores, attend
from polyhal.models.decoder_config import DecoderConfig, ExpertConfig
from polyhal.models.decoder_parts import ACTIVATIONS, Parts
from polyhal.nn import KVCache, Linear, Module, Parameter, RotaryEmbedding, Rotation, init
from polyhal.nn import functional as F

if TYPE_CHECKING:
    from polyhal.parallel import Group

_NORMS: dict[str, tuple[str | None, str | None, str | None, str | None]] = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "both": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}
"""Names of the norms before and after attention, and before and after the feed-forward network, by place."""


@dataclass(slots=True)
class DecoderCall:
    """The parts of a call of a decoder that its layers share."""

    angles: dict[bool, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Cosines and sines for layers without and with the window's rotary base; empty for learned positions."""
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)
    """Masks by sliding window."""
    cache: KVCache | None = None


class Attention(Module):
    """Causal self-attention. Heads of queries may share heads of keys and values."""

    def __init__(self, c: DecoderConfig, parts: Parts, layer: int, name: str) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.width = c.num_attention_heads, c.kv_heads, c.head_width
        self.scores = Scores(c.attention_scale, c.window(layer), c.attention_softcap)
        self.rotates = c.positions == "rotary" and layer not in c.layers_without_rotary
        self.near = is_near(c, layer)
        wide, narrow = self.heads * self.width, self.kv_heads * self.width
        self.q_proj = parts.linear(f"{name}.q_proj", c.hidden_size, wide, c.attention_bias)
        self.k_proj = parts.linear(f"{name}.k_proj", c.hidden_size, narrow, c.attention_bias)
        self.v_proj = parts.linear(f"{name}.v_proj", c.hidden_size, narrow, c.attention_bias)
        self.o_proj = parts.linear(f"{name}.o_proj", wide, c.hidden_size, c.output_bias)
        self.norm_is_per_head = c.query_key_norm == "head"
        self.q_norm: Module | None = None
        self.k_norm: Module | None = None
        if c.query_key_norm is not None:
            sizes = (self.width, self.width) if self.norm_is_per_head else (wide, narrow)
            self.q_norm = parts.norm(f"{name}.q_norm", sizes[0], c)
            self.k_norm = parts.norm(f"{name}.k_norm", sizes[1], c)

    def forward(self, x: Tensor, rotary: RotaryEmbedding | None, call: DecoderCall) -> Tensor:
        angles = call.angles.get(self.near) if self.rotates else None
        turn = None if angles is None or rotary is None else Rotation(*angles, rotary.interleaved)
        q = self.prepared(self.q_proj(x), self.heads, self.q_norm)
        k = self.prepared(self.k_proj(x), self.kv_heads, self.k_norm)
        v = F.split_heads(self.v_proj(x), self.kv_heads)
        out = attend(q, k, v, call.masks.get(self.scores.window), self.scores, call.cache, self.layer, turn)
        result: Tensor = self.o_proj(F.merge_heads(out))
        return result

    def prepared(self, x: Tensor, heads: int, norm: Module | None) -> Tensor:
        """Return projected queries or keys (B, T, E) as heads (B, H, T, D), normalised."""
        if norm is not None and not self.norm_is_per_head:
            x = norm(x)
        x = F.split_heads(x, heads)
        return norm(x) if norm is not None and self.norm_is_per_head else x

    def tensor_parallel(self, group: Group, shares: Sequence[float] | None) -> Module | None:
        """Return this layer with its heads divided among devices; None with query-key norms, or layers other than `Linear`."""
        from polyhal.models.parallel_blocks import ParallelAttention

        projections = (self.q_proj, self.k_proj, self.v_proj, self.o_proj)
        if self.q_norm is not None or not all(type(p) is Linear for p in projections):
            return None
        return ParallelAttention(self, group, shares)


class LatentAttention(Module):
    """Attention with keys and values from a narrow latent vector, and rotated features that heads share.

    Source: DeepSeek-AI, arXiv:2405.04434. A cache holds the keys and values of all heads.
    """

    def __init__(self, c: DecoderConfig, parts: Parts, layer: int, name: str) -> None:
        super().__init__()
        assert c.latent is not None
        self.layer = layer
        self.heads, self.latent, self.width = c.num_attention_heads, c.latent, c.head_width
        self.scores = Scores(c.attention_scale, c.window(layer), c.attention_softcap)
        self.near = is_near(c, layer)
        at, wide, heads = c.latent, c.num_attention_heads * c.head_width, c.num_attention_heads
        if at.query_rank is None:
            self.q_proj = parts.linear(f"{name}.q_proj", c.hidden_size, wide, False)
        else:
            self.q_a_proj = parts.linear(f"{name}.q_a_proj", c.hidden_size, at.query_rank, c.attention_bias)
            self.q_a_layernorm = parts.norm(f"{name}.q_a_layernorm", at.query_rank, c, 1e-6)
            self.q_b_proj = parts.linear(f"{name}.q_b_proj", at.query_rank, wide, False)
        narrow = at.rank + at.rotary_width
        self.kv_a_proj_with_mqa = parts.linear(f"{name}.kv_a_proj_with_mqa", c.hidden_size, narrow, c.attention_bias)
        self.kv_a_layernorm = parts.norm(f"{name}.kv_a_layernorm", at.rank, c, 1e-6)
        both = heads * (at.plain_width + at.value_width)
        self.kv_b_proj = parts.linear(f"{name}.kv_b_proj", at.rank, both, False)
        self.o_proj = parts.linear(f"{name}.o_proj", heads * at.value_width, c.hidden_size, c.output_bias)

    def forward(self, x: Tensor, rotary: RotaryEmbedding, call: DecoderCall) -> Tensor:
        at, angles = self.latent, call.angles[self.near]
        q = self.q_proj(x) if at.query_rank is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = F.split_heads(q, self.heads)
        plain = at.plain_width
        q = ph.concat([q[..., :plain], rotary.rotate(q[..., plain:], angles)], -1)
        narrow = self.kv_a_proj_with_mqa(x)
        shared = rotary.rotate(F.split_heads(narrow[..., at.rank :], 1), angles)
        kv = F.split_heads(self.kv_b_proj(self.kv_a_layernorm(narrow[..., : at.rank])), self.heads)
        shared = ph.broadcast_to(shared, (*kv.shape[:-1], at.rotary_width))
        k, v = ph.concat([kv[..., :plain], shared], -1), kv[..., plain:]
        out = attend(q, k, v, call.masks.get(self.scores.window), self.scores, call.cache, self.layer)
        result: Tensor = self.o_proj(F.merge_heads(out))
        return result


class DecoderFeedForward(Module):
    """`down(f(gate(x)) * up(x))`, or `down(f(up(x)))` without a gate."""

    def __init__(self, c: DecoderConfig, parts: Parts, hidden: int, name: str) -> None:
        super().__init__()
        self.activation = c.activation
        bias = c.mlp_bias
        self.gate_proj = parts.linear(f"{name}.gate_proj", c.hidden_size, hidden, bias) if c.gated else None
        self.up_proj = parts.linear(f"{name}.up_proj", c.hidden_size, hidden, bias)
        self.down_proj = parts.linear(f"{name}.down_proj", hidden, c.hidden_size, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj
        function = ACTIVATIONS[self.activation]
        hidden = function(self.up_proj(x)) if gate is None else function(gate(x)) * self.up_proj(x)
        out: Tensor = self.down_proj(hidden)
        return out

    def tensor_parallel(self, group: Group, shares: Sequence[float] | None) -> Module | None:
        """Return this layer with its hidden units divided among devices; None with layers other than `Linear`."""
        from polyhal.models.parallel_blocks import ParallelGatedFeedForward

        if type(self.up_proj) is not Linear:
            return None
        return ParallelGatedFeedForward(self, group, shares)


class Router(Module):
    """Selects experts for each token: x (T, E) to weights and numbers of experts, both (T, k).

    Half precision computes in float32.
    """

    def __init__(self, c: DecoderConfig, e: ExpertConfig, parts: Parts) -> None:
        super().__init__()
        self.settings = e
        zeros = ph.zeros((e.count, c.hidden_size), dtype=parts.dtype, device=parts.device)
        self.weight = Parameter(zeros)
        self.e_score_correction_bias: Tensor | None = None
        if e.correction:
            self.register_buffer("e_score_correction_bias", ph.zeros((e.count,), device=parts.device))
        init.normal_(self.weight, 0.0, c.initializer_range)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        e = self.settings
        exact = x.dtype if x.dtype.itemsize > 4 else dtypes.float32
        logits = F.linear(x.to(exact), self.weight.to(exact))
        scores = ph.softmax(logits, -1) if e.scores == "softmax" else ph.sigmoid(logits)
        rank = scores if self.e_score_correction_bias is None else scores + self.e_score_correction_bias
        if e.groups > 1:
            rank = self._in_best_groups(rank)
        chosen = ph.topk(rank, e.per_token, -1)[1]
        weights = ph.gather(scores, -1, chosen)
        if e.normalised:
            weights = weights / ph.sum(weights, -1, True)
        return weights * e.scale, chosen

    def _in_best_groups(self, rank: Tensor) -> Tensor:
        """Return `rank` with -inf for experts outside of the best groups."""
        e = self.settings
        grouped = ph.reshape(rank, (rank.shape[0], e.groups, -1))
        best = ph.topk(grouped, 1 if e.group_scores == "largest" else 2, -1)[0]
        least = ph.topk(ph.sum(best, -1), e.groups_kept, -1)[0][:, -1:]
        kept = ph.greater_equal(ph.sum(best, -1), least)
        result: Tensor = ph.where(ph.unsqueeze(kept, -1), grouped, -float("inf")).reshape(rank.shape)
        return result


class Experts(Module):
    """A feed-forward network per expert, a router that selects some for each token, and one network for all tokens."""

    def __init__(self, c: DecoderConfig, e: ExpertConfig, parts: Parts, name: str) -> None:
        super().__init__()
        self.count, self.activation = e.count, c.activation
        self.gate = Router(c, e, parts)
        wide, hidden = c.hidden_size, e.intermediate_size
        self.experts = ph.nn.ModuleDict(
            {
                kind: parts.experts(f"{name}.experts.{kind}", e.count, *sizes)
                for kind, sizes in (
                    ("gate_proj", (wide, hidden)),
                    ("up_proj", (wide, hidden)),
                    ("down_proj", (hidden, wide)),
                )
            }
        )
        self.shared_expert = (
            DecoderFeedForward(c, parts, e.shared_size, f"{name}.shared_expert") if e.shared_size else None
        )
        self.shared_expert_gate = parts.linear(f"{name}.shared_expert_gate", wide, 1, False) if e.shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape((-1, x.shape[-1]))
        weights, chosen = self.gate(rows)
        out = self._routed(rows, weights.to(x.dtype), chosen)
        if self.shared_expert is not None:
            shared = self.shared_expert(rows)
            if self.shared_expert_gate is not None:
                shared = ph.sigmoid(self.shared_expert_gate(rows)) * shared
            out = out + shared
        result: Tensor = out.reshape(x.shape)
        return result

    def _routed(self, rows: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Return the weighted sums of results.

        Few tokens gather the matrices of their experts. Many tokens pass through all experts with weights of 0, so that shapes
        do not depend on the choice.
        """
        gate, up, down = (self.experts[kind] for kind in ("gate_proj", "up_proj", "down_proj"))
        function = ACTIVATIONS[self.activation]
        if 2 * chosen.size <= self.count:
            x = rows.unsqueeze(1)
            hidden = function(gate(x, chosen)) * up(x, chosen)
            few: Tensor = ph.sum(down(hidden, chosen) * weights.unsqueeze(-1), 1)
            return few
        every = ph.scatter(
            ph.zeros((rows.shape[0], self.count), dtype=rows.dtype, device=rows.device), 1, chosen, weights
        )
        hidden = function(gate.every(rows)) * up.every(rows) * ph.transpose(every).unsqueeze(-1)
        many: Tensor = ph.sum(down.every(hidden), 0)
        return many


class DecoderLayer(Module):
    """Attention and feed-forward network, each added to the residual stream, with norms before, after or both."""

    def __init__(self, c: DecoderConfig, parts: Parts, layer: int) -> None:
        super().__init__()
        name = f"model.layers.{layer}"
        kind = Attention if c.latent is None else LatentAttention
        self.self_attn = kind(c, parts, layer, f"{name}.self_attn")
        if c.experts is not None and c.has_experts(layer):
            self.mlp: Module = Experts(c, c.experts, parts, f"{name}.mlp")
        else:
            self.mlp = DecoderFeedForward(c, parts, c.intermediate_size, f"{name}.mlp")
        self.norms = _NORMS[c.norm_places]
        for norm in self.norms:
            if norm is not None:
                setattr(self, norm, parts.norm(f"{name}.{norm}", c.hidden_size, c))
        self.parallel_residual = c.parallel_residual
        self.residual_scale = c.residual_scale

    def forward(self, x: Tensor, rotary: RotaryEmbedding | None, call: DecoderCall) -> Tensor:
        attended = self._added(1, self.self_attn(self._normed(0, x), rotary, call))
        if self.parallel_residual:
            return x + attended + self._added(3, self.mlp(self._normed(2, x)))
        x = x + attended
        return x + self._added(3, self.mlp(self._normed(2, x)))

    def _normed(self, place: int, x: Tensor) -> Tensor:
        name = self.norms[place]
        return x if name is None else getattr(self, name)(x)

    def _added(self, place: int, x: Tensor) -> Tensor:
        """Return a result in the form that is added to the residual stream."""
        x = self._normed(place, x)
        return x if self.residual_scale == 1.0 else x * self.residual_scale


def is_near(c: DecoderConfig, layer: int) -> bool:
    """Return whether a layer rotates with the base of layers with a window."""
    return c.window_rope_theta is not None and (c.window_layers is None or layer in c.window_layers)


def norm_names(c: DecoderConfig) -> list[str]:
    """Return the names of a layer's norms."""
    return [name for name in _NORMS[c.norm_places] if name is not None]
