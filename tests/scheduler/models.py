"""Training steps of small models, for tests of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyhal as ph
from polyhal import nn, optim
from polyhal.models import GPT, GPTConfig


def training(kind: str, device: ph.Device) -> tuple[nn.Module, Callable[..., Any], tuple[ph.Tensor, ...]]:
    """Return a model, a step that trains it, and the arguments of the step."""
    ph.manual_seed(0)
    rng = np.random.default_rng(0)

    def data(shape: tuple[int, ...]) -> ph.Tensor:
        return ph.Tensor(rng.standard_normal(shape).astype(np.float32), device=device)

    def labels(count: int, *shape: int) -> ph.Tensor:
        return ph.Tensor(rng.integers(0, count, shape), device=device)

    model: Any
    if kind == "mlp":
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
        arguments = (data((64, 64)), labels(10, 64))
    elif kind == "cnn":
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )
        arguments = (data((32, 1, 8, 8)), labels(10, 32))
    else:
        model = GPT(GPTConfig(vocab_size=65, block_size=32, n_layer=3, n_head=4, n_embd=32, dropout=0.1))
        arguments = (labels(65, 8, 32), labels(65, 8, 32))
    model.to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss: ph.Tensor = model.loss(x, y) if kind == "gpt" else nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, step, arguments
