"""A Llama-style decoder: RMS norm, rotary positions, SwiGLU, and heads that share keys and values.

Source: Touvron et al., arXiv:2302.13971 and arXiv:2307.09288. Settings and state-dict keys equal Hugging Face's
`LlamaForCausalLM`, so that its weights load. `load_llama2c` reads the files of llama2.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal.errors import ShapeError, message
from polyhal.models.llama_config import LlamaConfig
from polyhal.models.masks import visibility
from polyhal.nn import Embedding, KVCache, Linear, Module, ModuleDict, ModuleList, RMSNorm, RotaryEmbedding, init
from polyhal.nn import functional as F

if TYPE_CHECKING:
    from polyhal.parallel import Group


class LlamaAttention(Module):
    """Causal self-attention on rotated queries and keys."""

    def __init__(self, c: LlamaConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.heads = c.num_attention_heads
        self.kv_heads = c.kv_heads
        wide, narrow = c.num_attention_heads * c.head_width, c.kv_heads * c.head_width
        self.q_proj = Linear(c.hidden_size, wide, c.attention_bias, device, dtype)
        self.k_proj = Linear(c.hidden_size, narrow, c.attention_bias, device, dtype)
        self.v_proj = Linear(c.hidden_size, narrow, c.attention_bias, device, dtype)
        self.o_proj = Linear(wide, c.hidden_size, c.attention_bias, device, dtype)

    def forward(
        self,
        x: Tensor,
        rotary: RotaryEmbedding,
        angles: tuple[Tensor, Tensor],
        cache: KVCache | None = None,
        layer: int = 0,
        mask: Tensor | None = None,
    ) -> Tensor:
        q = rotary.rotate(F.split_heads(self.q_proj(x), self.heads), angles)
        k = rotary.rotate(F.split_heads(self.k_proj(x), self.kv_heads), angles)
        v = F.split_heads(self.v_proj(x), self.kv_heads)
        if cache is not None:
            out = cache.attend(layer, q, k, v, mask)
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
        result: Tensor = self.o_proj(F.merge_heads(out))
        return result

    def tensor_parallel(self, group: Group, shares: Sequence[float] | None) -> Module:
        """Return this layer with its heads divided among devices."""
        from polyhal.models.parallel_blocks import ParallelLlamaAttention

        return ParallelLlamaAttention(self, group, shares)


class SwiGLU(Module):
    """A feed-forward network with a gate: `down(silu(gate(x)) * up(x))`. Source: Shazeer, arXiv:2002.05202."""

    def __init__(self, width: int, hidden: int, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.gate_proj = Linear(width, hidden, False, device, dtype)
        self.up_proj = Linear(width, hidden, False, device, dtype)
        self.down_proj = Linear(hidden, width, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out

    def tensor_parallel(self, group: Group, shares: Sequence[float] | None) -> Module:
        """Return this layer with its hidden units divided among devices."""
        from polyhal.models.parallel_blocks import ParallelSwiGLU

        return ParallelSwiGLU(self, group, shares)


class LlamaLayer(Module):
    """Attention and feed-forward network, each on normalised input and added to the residual stream."""

    def __init__(self, c: LlamaConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(c, device, dtype)
        self.mlp = SwiGLU(c.hidden_size, c.intermediate_size, device, dtype)
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps, device=device, dtype=dtype)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps, device=device, dtype=dtype)

    def forward(
        self,
        x: Tensor,
        rotary: RotaryEmbedding,
        angles: tuple[Tensor, Tensor],
        cache: KVCache | None = None,
        layer: int = 0,
        mask: Tensor | None = None,
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, angles, cache, layer, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(Module):
    """Token ids (B, T) to logits of the next token (B, T, vocab_size)."""

    def __init__(self, config: LlamaConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        c = self.config = config
        self.model = ModuleDict(
            {
                "embed_tokens": Embedding(c.vocab_size, c.hidden_size, device=device, dtype=dtype),
                "layers": ModuleList(LlamaLayer(c, device, dtype) for _ in range(c.num_hidden_layers)),
                "norm": RMSNorm(c.hidden_size, c.rms_norm_eps, device=device, dtype=dtype),
                "rotary_emb": RotaryEmbedding(
                    c.head_width, c.max_position_embeddings, c.rope_theta, device=device, scaling=c.rope_scaling
                ),
            }
        )
        self.lm_head = Linear(c.hidden_size, c.vocab_size, False, device, dtype)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.model["embed_tokens"].weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights from a normal distribution; scales of norms are 1 and biases 0."""
        for name, p in self.named_parameters():
            if p.ndim >= 2:
                init.normal_(p, 0.0, self.config.initializer_range)
            elif name.endswith("bias"):
                init.zeros_(p)

    @property
    def context_length(self) -> int:
        """Maximum number of tokens in the context."""
        return self.config.max_position_embeddings

    @property
    def device(self) -> Device:
        """Device of the weights."""
        return self.lm_head.weight.device

    def forward(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        last_only: bool = False,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, vocab_size), or (B, 1, vocab_size) with `last_only`.

        With a cache, `ids` continue its positions, and are added to it. `attention_mask` (B, keys) is 0 at padding; other
        masks broadcast to (B, heads, T, keys), bool or added to the scores. Raises ShapeError beyond the context.
        """
        if ids.ndim != 2:
            raise ShapeError(message("Llama", f"token ids of shape {ids.shape}", expected="(batch, length)"))
        count = ids.shape[1]
        before = 0 if cache is None else cache.length
        if before + count > self.context_length:
            expected = f"at most {self.context_length}"
            raise ShapeError(message("Llama", f"{before + count} tokens of context", expected=expected))
        parts = self.model
        rotary = parts["rotary_emb"]
        mask, places = visibility("Llama", ids, attention_mask, cache)
        if places is not None:
            angles = rotary.angles_at(places[:, None])
        else:
            angles = rotary.angles(0 if cache is None else cache.start(count), count)
        x = parts["embed_tokens"](ids)
        for i, layer in enumerate(parts["layers"]):
            x = layer(x, rotary, angles, cache, i, mask)
        if cache is not None:
            cache.advance(count)
        if last_only:
            x = x[:, count - 1 :]
        logits: Tensor = self.lm_head(parts["norm"](x))
        return logits

    def loss(self, ids: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy of `targets` (B, T) given `ids` (B, T), in nats per token; -100 is ignored."""
        logits = self(ids, attention_mask=attention_mask)
        return F.cross_entropy(ph.reshape(logits, (-1, logits.shape[-1])), ph.reshape(targets, (-1,)))

    def make_cache(self, batch: int = 1) -> KVCache:
        """Make an empty cache for decoding up to the context length."""
        c, weight = self.config, self.lm_head.weight
        return KVCache(
            c.num_hidden_layers, batch, c.kv_heads, self.context_length, c.head_width, weight.dtype, weight.device
        )

    def generate(self, prompt_ids: Sequence[int], max_tokens: int, **options: Any) -> list[int]:
        """Generate tokens after a prompt; `options` are passed to `polyhal.models.generate`."""
        from polyhal.models.generation import generate

        return generate(self, prompt_ids, max_tokens, **options)

    def tensor_parallel_vocabulary(self, group: Group, shares: Sequence[float] | None, gather_logits: bool) -> None:
        """Divide the tables of tokens and logits among devices, in place."""
        from polyhal.parallel import divide_vocabulary

        divide_vocabulary(self.model, "embed_tokens", self, group, shares, gather_logits)


def from_llama_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the state dict of a Hugging Face model: tied weights appear twice, and tables of angles are dropped."""
    out = {key: value for key, value in state.items() if not key.endswith("rotary_emb.inv_freq")}
    out.setdefault("lm_head.weight", out["model.embed_tokens.weight"])
    return out
