"""A Llama-style decoder in PyTorch, with Hugging Face's names; its rotation is a product of complex numbers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from polyhal.models import DecoderConfig


class Layer(nn.Module):
    """Attention and a gated feed-forward network, normalised before."""

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__()
        width, head = c.hidden_size, c.head_width
        self.heads, self.kv_heads, self.theta = c.num_attention_heads, c.kv_heads, c.rope_theta
        sizes = {"q_proj": (width, self.heads * head), "k_proj": (width, self.kv_heads * head)}
        sizes |= {"v_proj": (width, self.kv_heads * head), "o_proj": (self.heads * head, width)}
        self.self_attn = nn.ModuleDict({name: nn.Linear(*size, bias=False) for name, size in sizes.items()})
        sizes = {"gate_proj": (width, c.intermediate_size), "up_proj": (width, c.intermediate_size)}
        sizes |= {"down_proj": (c.intermediate_size, width)}
        self.mlp = nn.ModuleDict({name: nn.Linear(*size, bias=False) for name, size in sizes.items()})
        self.input_layernorm = nn.RMSNorm(width, c.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(width, c.norm_eps)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Feature i is the real and feature i + width/2 the imaginary part."""
        length, width = x.shape[-2:]
        rates = self.theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), rates)
        turned = torch.complex(*x.double().chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], -1).to(x.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        y, attn, mlp = self.input_layernorm(x), self.self_attn, self.mlp
        q = self.rotated(attn["q_proj"](y).view(n, length, self.heads, -1).transpose(1, 2))
        k = self.rotated(attn["k_proj"](y).view(n, length, self.kv_heads, -1).transpose(1, 2))
        v = attn["v_proj"](y).view(n, length, self.kv_heads, -1).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = torch.softmax((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf), -1)
        x = x + attn["o_proj"]((weights @ v).transpose(1, 2).reshape(n, length, -1))
        y = self.post_attention_layernorm(x)
        return x + mlp["down_proj"](F.silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class TorchLlama(nn.Module):
    """`polyhal.models.Decoder` in PyTorch."""

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__()
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(c.vocab_size, c.hidden_size),
                "layers": nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers)),
                "norm": nn.RMSNorm(c.hidden_size, c.norm_eps),
            }
        )
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.model["embed_tokens"].weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.model["embed_tokens"](ids)
        for layer in self.model["layers"]:
            x = layer(x)
        return self.lm_head(self.model["norm"](x))
