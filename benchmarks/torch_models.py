"""The models of `polyhal.models` in PyTorch, with the same state-dict keys, for comparison."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional as F

from polyhal.models.bert import BertConfig
from polyhal.models.gpt_config import GPTConfig


class _Attention(nn.Module):
    def __init__(self, c: GPTConfig) -> None:
        super().__init__()
        self.heads, self.dropout = c.n_head, c.dropout
        self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, c.bias)
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, c.bias)
        self.resid_dropout = nn.Dropout(c.dropout)

    def forward(self, x: torch.Tensor, past: list[torch.Tensor] | None = None) -> torch.Tensor:
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.c_attn(x).split(w, -1))
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            first, past[:] = not past, (k, v)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=first)
            return self.c_proj(out.transpose(1, 2).reshape(b, t, w))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.resid_dropout(self.c_proj(out.transpose(1, 2).reshape(b, t, w)))


class _FeedForward(nn.Module):
    def __init__(self, c: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(c.n_embd, 4 * c.n_embd, c.bias)
        self.c_proj = nn.Linear(4 * c.n_embd, c.n_embd, c.bias)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


class _Block(nn.Module):
    def __init__(self, c: GPTConfig) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(c.n_embd, bias=c.bias), nn.LayerNorm(c.n_embd, bias=c.bias)
        self.attn, self.mlp = _Attention(c), _FeedForward(c)

    def forward(self, x: torch.Tensor, past: list[torch.Tensor] | None = None) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x), past)
        return x + self.mlp(self.ln_2(x))


class TorchGPT(nn.Module):
    """`polyhal.models.GPT` in PyTorch."""

    def __init__(self, c: GPTConfig) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(c.vocab_size, c.n_embd),
                "wpe": nn.Embedding(c.block_size, c.n_embd),
                "drop": nn.Dropout(c.dropout),
                "h": nn.ModuleList(_Block(c) for _ in range(c.n_layer)),
                "ln_f": nn.LayerNorm(c.n_embd, bias=c.bias),
            }
        )
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        if c.tie_weights:
            self.lm_head.weight = self.transformer["wte"].weight
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        parts = self.transformer
        x = parts["drop"](parts["wte"](ids) + parts["wpe"].weight[: ids.shape[1]])
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))

    def continued(
        self, ids: torch.Tensor, past: list[list[torch.Tensor]] | None
    ) -> tuple[torch.Tensor, list[list[torch.Tensor]]]:
        """Decode with a KV cache: `past` holds keys and values per block. Returns the last logits and the new cache."""
        parts = self.transformer
        if past is None:
            past = [[] for _ in parts["h"]]
        start = past[0][0].shape[2] if past[0] else 0
        x = parts["wte"](ids) + parts["wpe"].weight[start : start + ids.shape[1]]
        for block, own in zip(parts["h"], past, strict=True):
            x = block(x, own)
        return self.lm_head(parts["ln_f"](x[:, -1:])), past

    def loss(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())


class _ResidualBlock(nn.Module):
    """Two convolutions with a shortcut, as in a ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


def _resnet18(classes: int) -> nn.Module:
    widths = (64, 64, 128, 256, 512)
    blocks = [_ResidualBlock(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)]
    stages = [m for b, n in zip(blocks, widths[1:], strict=True) for m in (b, _ResidualBlock(n, n, 1))]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )


class _Bottleneck(nn.Module):
    """Three convolutions with a shortcut, as in a ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


def _resnet50(classes: int) -> nn.Module:
    stages: list[nn.Module] = []
    inputs = 64
    for width, count in zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True):
        for i in range(count):
            stages.append(_Bottleneck(inputs, width, 2 if i == 0 and width > 64 else 1))
            inputs = 4 * width
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, classes),
    )


class _EncoderLayer(nn.Module):
    """Attention and a perceptron, each normalised after its sum, as in BERT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, w = x.shape
        q, k, v = (p(x).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w)
        x = self.first(x + self.out(mixed))
        return self.second(x + self.mlp(x))


class Encoder(nn.Module):
    """A small BERT with a language model's head."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(_EncoderLayer(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.layers(self.norm(self.words(ids) + self.places(places))))


class Bert(nn.Module):
    """`polyhal.models.bert.Bert` without masks: hidden states, and the pooled first one."""

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.words, self.types = (nn.Embedding(n, c.hidden_size) for n in (c.vocab_size, c.type_vocab_size))
        self.places = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.norm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
        layers = (_EncoderLayer(c.hidden_size, c.num_attention_heads) for _ in range(c.num_hidden_layers))
        self.layers = nn.Sequential(*layers)
        self.pool = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = self.places.weight[: ids.shape[1]]
        x = self.layers(self.norm(self.words(ids) + self.types(torch.zeros_like(ids)) + places))
        return x, torch.tanh(self.pool(x[:, 0]))


def classifier(name: str, classes: int = 10) -> nn.Module:
    """Return `MLP((784, 512, 10))`, `CNN()`, `resnet18(10)` or `resnet50(classes)` of `polyhal.models` by workload name."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    if name.startswith("resnet-50"):
        return _resnet50(classes)
    if name.startswith("resnet"):
        return _resnet18(10)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 16, 10),
    )
