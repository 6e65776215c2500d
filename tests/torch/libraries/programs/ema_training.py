"""ema-pytorch: averages of a model that trains."""

from __future__ import annotations

import torch
from ema_pytorch import EMA
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


class _Averaged(nn.Module):
    """A model and its moving average, which teaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        self.average = EMA(self.layers, beta=0.9, update_after_step=1, update_every=1, include_online_model=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the distance from the average."""
        self.average.update()
        with torch.no_grad():
            target = self.average(x)
        return (self.layers(x) - target).square().mean() + self.layers(x).mean()


def _averaged() -> Made:
    return _Averaged(), {"x": torch.randn(5, 6)}


trained_case("ema-pytorch", "EMA", _averaged)
