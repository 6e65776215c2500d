"""A GPT-2 style language model. Source: Radford et al., "Language models are unsupervised multitask learners", 2019.

State-dict keys are GPT-2's (`transformer.h.0.attn.c_attn.weight`, ...) with the layout of `nn.Linear`;
`from_gpt2_state` transposes the projections of the original.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal import Device, Tensor
from polyhal.models.causal import CausalModel, last_rows
from polyhal.models.gpt_config import GPTConfig
from polyhal.models.masks import visibility
from polyhal.nn import Dropout, Embedding, KVCache, LayerNorm, Linear, Module, ModuleDict, ModuleList, init
from polyhal.nn import functional as F

if TYPE_CHECKING:
    from polyhal.parallel import Group


class CausalSelfAttention(Module):
    """Causal multi-head self-attention."""

    def __init__(self, config: GPTConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.heads = config.n_head
        self.dropout = config.dropout
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd, config.bias, device, dtype)
        self.c_proj = Linear(config.n_embd, config.n_embd, config.bias, device, dtype)
        self.resid_dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, cache: KVCache | None = None, layer: int = 0, mask: Tensor | None = None) -> Tensor:
        q, k, v = F.split_projection(self.c_attn(x), self.heads)
        if cache is not None:
            out = cache.attend(layer, q, k, v, mask)
        else:
            dropout = self.dropout if self.training else 0.0
            out = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=mask is None)
        result: Tensor = self.resid_dropout(self.c_proj(F.merge_heads(out)))
        return result

    def tensor_parallel(self, group: Group, shares: Sequence[float] | None) -> Module:
        """Return this layer with its heads divided among devices."""
        from polyhal.models.parallel_blocks import ParallelCausalSelfAttention

        return ParallelCausalSelfAttention(self, group, shares)


class FeedForward(Module):
    """Two linear layers with GELU between them, four times as wide there."""

    def __init__(self, config: GPTConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd, config.bias, device, dtype)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd, config.bias, device, dtype)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(self.c_proj(self.c_fc(x, "gelu_tanh")))
        return result

    def tensor_parallel(self, group: Group, shares: Sequence[float] | None) -> Module:
        """Return this layer with its hidden units divided among devices."""
        from polyhal.models.parallel_blocks import ParallelFeedForward

        return ParallelFeedForward(self, group, shares)


class GPTBlock(Module):
    """One layer: attention and feed-forward, each on normalised input and added to the residual stream."""

    def __init__(self, config: GPTConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.layer_norm_eps, bias=config.bias, device=device, dtype=dtype)
        self.attn = CausalSelfAttention(config, device, dtype)
        self.ln_2 = LayerNorm(config.n_embd, config.layer_norm_eps, bias=config.bias, device=device, dtype=dtype)
        self.mlp = FeedForward(config, device, dtype)

    def forward(self, x: Tensor, cache: KVCache | None = None, layer: int = 0, mask: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache, layer, mask)
        result: Tensor = x + self.mlp(self.ln_2(x))
        return result


class GPT(CausalModel):
    """Token ids (B, T) to logits of the next token (B, T, vocab_size)."""

    def __init__(self, config: GPTConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.config = config
        self.context_length = config.block_size
        self.transformer = ModuleDict(
            {
                "wte": Embedding(config.vocab_size, config.n_embd, device=device, dtype=dtype),
                "wpe": Embedding(config.block_size, config.n_embd, device=device, dtype=dtype),
                "drop": Dropout(config.dropout),
                "h": ModuleList(GPTBlock(config, device, dtype) for _ in range(config.n_layer)),
                "ln_f": LayerNorm(config.n_embd, config.layer_norm_eps, bias=config.bias, device=device, dtype=dtype),
            }
        )
        self.lm_head = Linear(config.n_embd, config.vocab_size, False, device, dtype)
        if config.tie_weights:
            self.lm_head.weight = self.transformer["wte"].weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw GPT-2's initial values: normal 0.02, residual projections smaller by sqrt(2 n_layer), zero biases."""
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                init.normal_(p, 0.0, 0.02 / math.sqrt(2 * self.config.n_layer))
            elif p.ndim >= 2:
                init.normal_(p, 0.0, 0.02)
            elif name.endswith("bias"):
                init.zeros_(p)

    @property
    def device(self) -> Device:
        """Device of the weights."""
        return self.lm_head.weight.device

    def forward(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        last_only: bool | Tensor = False,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, vocab_size), or (B, 1, vocab_size) of the last tokens, or of places (B,), by `last_only`.

        With a cache, `ids` continue its positions, and are added to it. `attention_mask` (B, keys) is 0 at padding; other
        masks broadcast to (B, heads, T, keys), bool or added to the scores. Raises ShapeError beyond `block_size`.
        """
        self.check_context(ids, cache)
        count = ids.shape[1]
        parts = self.transformer
        mask, places = visibility("GPT", ids, attention_mask, cache)
        positions = parts["wpe"].weight[:count] if places is None else parts["wpe"](places)
        x = parts["drop"](parts["wte"](ids) + positions)
        for i, block in enumerate(parts["h"]):
            x = block(x, cache, i, mask)
        if cache is not None:
            cache.advance(count)
        x = last_rows(x, last_only)
        result: Tensor = self.lm_head(parts["ln_f"](x))
        return result

    def make_cache(self, batch: int = 1) -> KVCache:
        """Make an empty cache for decoding up to `block_size` tokens."""
        c, weight = self.config, self.lm_head.weight
        kind = self.cache_dtype or weight.dtype
        return KVCache(c.n_layer, batch, c.n_head, c.block_size, c.n_embd // c.n_head, kind, weight.device)

    def tensor_parallel_vocabulary(self, group: Group, shares: Sequence[float] | None, gather_logits: bool) -> None:
        """Divide the tables of tokens and logits among devices, in place."""
        from polyhal.parallel import divide_vocabulary

        divide_vocabulary(self.transformer, "wte", self, group, shares, gather_logits)

    def flops_per_token(self) -> int:
        """Count the floating-point operations of one token's forward and backward pass: 6 per parameter, and attention.

        Source: Chowdhery et al., arXiv:2204.02311, appendix B.
        """
        c = self.config
        used: int = self.count_parameters() - self.transformer["wpe"].weight.size
        return 6 * used + 12 * c.n_layer * c.n_embd * c.block_size


_TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def from_gpt2_state(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Convert a state dict of the original GPT-2 release to this model's form.

    Its projections are (in, out) and keys may lack `transformer.`; its fixed causal masks are dropped.
    """
    out: dict[str, np.ndarray] = {}
    for key, value in state.items():
        if key.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        array = np.asarray(value)
        name = key if key.startswith(("transformer.", "lm_head.")) else f"transformer.{key}"
        out[name] = array.T if name.endswith(_TRANSPOSED) else array
    out.setdefault("lm_head.weight", out["transformer.wte.weight"])
    return out
