"""A BERT-style encoder in PyTorch, with Hugging Face's names."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from polyhal.models import BertConfig


class Layer(nn.Module):
    """Self-attention and a feed-forward network, normalised afterwards."""

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        width, eps = c.hidden_size, c.layer_norm_eps
        self.heads = c.num_attention_heads
        self.attention = nn.ModuleDict(
            {
                "self": nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}),
                "output": nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps)}),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, c.intermediate_size)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(c.intermediate_size, width), "LayerNorm": nn.LayerNorm(width, eps)}
        )

    def forward(self, x: torch.Tensor, forbidden: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = (
            self.attention["self"][name](x).view(n, length, self.heads, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        scores = (q @ k.mT / math.sqrt(width // self.heads)).masked_fill(forbidden[:, None, None], -torch.inf)
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        part = self.attention["output"]
        x = part["LayerNorm"](part["dense"](y) + x)
        y = self.output["dense"](F.gelu(self.intermediate["dense"](x)))
        return self.output["LayerNorm"](y + x)


class TorchBert(nn.Module):
    """`polyhal.models.Bert` in PyTorch, without dropout."""

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        width = c.hidden_size
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(c.vocab_size, width, c.pad_token_id),
                "position_embeddings": nn.Embedding(c.max_position_embeddings, width),
                "token_type_embeddings": nn.Embedding(c.type_vocab_size, width),
                "LayerNorm": nn.LayerNorm(width, c.layer_norm_eps),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})
        for name, p in self.named_parameters():
            if p.ndim > 1 and "embeddings" not in name:
                nn.init.normal_(p, std=0.5 / math.sqrt(p.shape[1]))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parts = self.embeddings
        x = parts["word_embeddings"](ids) + parts["position_embeddings"](torch.arange(ids.shape[1]))
        x = parts["LayerNorm"](x + parts["token_type_embeddings"](types))
        for layer in self.encoder["layer"]:
            x = layer(x, mask == 0)
        return x, torch.tanh(self.pooler["dense"](x[:, 0]))
