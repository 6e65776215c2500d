"""Steps that tests export."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal
from polyhal import nn, optim
from polyhal.nn import functional as F


class TrainingStep:
    """A training step of a small classifier with dropout, recorded on a device after two calls."""

    def __init__(self, device: str = "numpy", dropout: float = 0.1, dtype: Any = np.int64) -> None:
        generator = np.random.default_rng(0)
        polyhal.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Dropout(dropout), nn.Linear(24, 5)).to(device)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-2)
        self.x = polyhal.tensor(generator.standard_normal((8, 16)).astype(np.float32), device=device)
        self.y = polyhal.tensor(generator.integers(0, 5, 8).astype(dtype), device=device)

        @polyhal.jit
        def step(x: polyhal.Tensor, y: polyhal.Tensor) -> polyhal.Tensor:
            self.optimizer.zero_grad()
            loss: polyhal.Tensor = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            return loss

        self.step = step
        for _ in range(3):
            self.run()

    def run(self) -> float:
        """Train once, and return the loss."""
        return float(self.step(self.x, self.y).item())
