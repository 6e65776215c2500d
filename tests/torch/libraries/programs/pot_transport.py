"""POT: optimal transport with gradients."""

from __future__ import annotations

import ot
import torch
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


class _Transported(nn.Module):
    """Points that move to others."""

    def __init__(self, exact: bool) -> None:
        super().__init__()
        self.points, self.exact = nn.Parameter(torch.randn(6, 2)), exact

    def forward(self, target: torch.Tensor) -> torch.Tensor:
        """Return the cost of the transport."""
        cost = ot.dist(self.points, target)
        first, second = (torch.full((len(x),), 1 / len(x)).to(target) for x in (self.points, target))
        if self.exact:
            return ot.emd2(first, second, cost)
        return ot.sinkhorn2(first, second, cost, reg=1.0, numItermax=20, warn=False)


def _transported(exact: bool) -> Made:
    return _Transported(exact), {"target": torch.randn(5, 2)}


trained_case("pot", "sinkhorn2", lambda: _transported(False))
trained_case("pot", "emd2", lambda: _transported(True))
