"""lightly: learning without labels."""

from __future__ import annotations

import torch
from lightly.loss import BarlowTwinsLoss, NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from torch import nn

from tests.torch.libraries.cases import Made, sgd, trained_case


class _Contrasted(nn.Module):
    """Two views of images, projected and compared."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 16))
        self.head, self.loss = SimCLRProjectionHead(16, 16, 8), loss

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Return the loss of two views."""
        return self.loss(self.head(self.layers(first)), self.head(self.layers(second)))


def _contrasted(loss: nn.Module) -> Made:
    return _Contrasted(loss), {"first": torch.randn(6, 3, 8, 8), "second": torch.randn(6, 3, 8, 8)}


trained_case("lightly", "SimCLR", lambda: _contrasted(NTXentLoss()), optimizer=sgd)
trained_case("lightly", "Barlow twins", lambda: _contrasted(BarlowTwinsLoss()), optimizer=sgd)
