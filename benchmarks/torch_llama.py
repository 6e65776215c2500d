"""A Llama in plain PyTorch with random weights, for the time of a prompt."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyhal.models import DecoderConfig


class TorchLlama(nn.Module):
    """The logits of the last position, of a Llama with the sizes of a configuration."""

    def __init__(self, c: DecoderConfig, dtype: torch.dtype, place: str) -> None:
        super().__init__()
        width = c.hidden_size // c.num_attention_heads
        self._heads, self._kept, self._epsilon = c.num_attention_heads, c.num_key_value_heads, c.norm_eps
        self.layers = nn.ModuleList()
        with torch.device(place):
            self.embed = nn.Embedding(c.vocab_size, c.hidden_size, dtype=dtype)
            for _ in range(c.num_hidden_layers):
                parts = {
                    name: nn.Linear(inputs, outputs, bias=False, dtype=dtype)
                    for name, inputs, outputs in (
                        ("qkv", c.hidden_size, (self._heads + 2 * self._kept) * width),
                        ("o", self._heads * width, c.hidden_size),
                        ("gate_up", c.hidden_size, 2 * c.intermediate_size),
                        ("down", c.intermediate_size, c.hidden_size),
                    )
                }
                norms = {n: nn.RMSNorm(c.hidden_size, c.norm_eps, dtype=dtype) for n in ("before", "between")}
                self.layers.append(nn.ModuleDict(parts | norms))
            self.norm = nn.RMSNorm(c.hidden_size, c.norm_eps, dtype=dtype)
            self.head = nn.Linear(c.hidden_size, c.vocab_size, bias=False, dtype=dtype)
            angles = torch.outer(torch.arange(c.max_position_embeddings), 1e4 ** -(torch.arange(0, width, 2) / width))
            self.cos, self.sin = (f(torch.cat([angles, angles], -1)).to(dtype) for f in (torch.cos, torch.sin))

    def forward(self, ids: Tensor) -> Tensor:
        x, t = self.embed(ids), ids.shape[1]
        for layer in self.layers:
            rows = layer["qkv"](layer["before"](x)).unflatten(-1, (self._heads + 2 * self._kept, -1)).transpose(1, 2)
            q, k, v = rows.split([self._heads, self._kept, self._kept], 1)
            q, k = (n * self.cos[:t] + _turned(n) * self.sin[:t] for n in (q, k))
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + layer["o"](out.transpose(1, 2).flatten(2))
            gate, up = layer["gate_up"](layer["between"](x)).chunk(2, -1)
            x = x + layer["down"](functional.silu(gate) * up)
        return self.head(self.norm(x[:, -1:]))


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)
