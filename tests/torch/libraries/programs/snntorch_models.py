"""snnTorch: leaky neurons in time."""

from __future__ import annotations

import snntorch
import torch
from torch import nn

from tests.torch.libraries.cases import trained_case


class _Spiking(nn.Module):
    """Two layers of neurons that fire."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 12), nn.Linear(12, 3)
        self.leaky, self.read = snntorch.Leaky(beta=0.9, learn_beta=True), snntorch.Leaky(beta=0.8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return potentials at all times."""
        first, second, seen = self.leaky.init_leaky(), self.read.init_leaky(), []
        for now in x:
            spikes, first = self.leaky(self.first(now), first)
            _, second = self.read(self.second(spikes), second)
            seen.append(second)
        return torch.stack(seen)


trained_case("snntorch", "Leaky neurons", lambda: (_Spiking(), {"x": 3 * torch.randn(5, 4, 6)}))
