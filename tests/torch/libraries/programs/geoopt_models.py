"""geoopt: points in hyperbolic space, with its optimizer."""

from __future__ import annotations

from typing import Any

import geoopt
import torch
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


class _Hyperbolic(nn.Module):
    """Distances of points of a Poincare ball."""

    def __init__(self) -> None:
        super().__init__()
        self.ball = geoopt.PoincareBall()
        self.points = geoopt.ManifoldParameter(0.1 * torch.randn(6, 3), manifold=self.ball)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return distances from points of the tangent space."""
        return self.ball.dist(self.ball.expmap0(x), self.points)


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return geoopt.optim.RiemannianAdam(parameters, lr=1e-3)


def _hyperbolic() -> Made:
    return _Hyperbolic(), {"x": 0.3 * torch.randn(6, 3)}


trained_case("geoopt", "Poincare ball, RiemannianAdam", _hyperbolic, optimizer=_adam)
