"""Whole training steps give the CPU's losses, parameters and gradients, only on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import polyhal.torch


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.first(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 17, width: int = 16, length: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def _mlp() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), torch.randn(5, 6), torch.randint(4, (5,))


def _gpt() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    tokens = torch.randint(17, (2, 9))
    return GPT(), tokens[:, :-1], tokens[:, 1:].flatten()


@pytest.mark.parametrize("made", [_mlp, _gpt])
@pytest.mark.parametrize("kind", ["foreach", "fused"])
def test_training(
    torch_device: str, made: Callable[[], tuple[nn.Module, torch.Tensor, torch.Tensor]], kind: str
) -> None:
    torch.manual_seed(0)
    model, inputs, targets = made()
    runs = []
    for device in ("cpu", torch_device):
        mine = copy.deepcopy(model).to(device)
        optimizer = torch.optim.AdamW(mine.parameters(), lr=1e-2, eps=1e-4, **{kind: True})
        losses = []
        for _ in range(4):
            loss = F.cross_entropy(mine(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        runs.append((losses, [p.detach().cpu() for p in mine.parameters()], [p.grad.cpu() for p in mine.parameters()]))
    (losses, params, grads), (found, found_params, found_grads) = runs
    assert found == pytest.approx(losses, rel=1e-5)
    for a, b in zip([*found_params, *found_grads], [*params, *grads], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())
