"""Norse: neurons that leak, integrate and fire."""

from __future__ import annotations

import norse.torch as snn
import torch
from torch import nn

from tests.torch.libraries.cases import trained_case


class _Spiking(nn.Module):
    """Cells of neurons between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = snn.SequentialState(nn.Linear(6, 12), snn.LIFCell(), nn.Linear(12, 3), snn.LICell())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the potentials at the last time."""
        state = None
        for now in x:
            out, state = self.layers(now, state)
        return out


trained_case("norse", "LIF cells", lambda: (_Spiking(), {"x": 10 * torch.randn(5, 4, 6)}))
