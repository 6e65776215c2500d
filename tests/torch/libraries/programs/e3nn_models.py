"""e3nn: an equivariant convolution of points."""

from __future__ import annotations

import torch
from e3nn import o3
from e3nn.nn import FullyConnectedNet
from torch import nn

from tests.torch.libraries.cases import trained_case


class _Convolution(nn.Module):
    """Messages of spherical harmonics between all pairs of points."""

    def __init__(self) -> None:
        super().__init__()
        self.harmonics = o3.Irreps.spherical_harmonics(2)
        self.product = o3.FullyConnectedTensorProduct("4x0e", self.harmonics, "4x0e + 2x1o", shared_weights=False)
        self.weights = FullyConnectedNet([8, 16, self.product.weight_numel], torch.nn.functional.silu)

    def forward(self, points: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Return the features of all points."""
        count = len(points)
        edges = (points[:, None] - points[None]).reshape(-1, 3)
        angles = o3.spherical_harmonics(self.harmonics, edges + 1e-3, normalize=True, normalization="component")
        distances = (edges.square().sum(1, keepdim=True) + 1e-6).sqrt() - torch.arange(8, device=points.device) / 4
        messages = self.product(features.repeat(count, 1), angles, self.weights((-distances.square()).exp()))
        return messages.reshape(count, count, -1).sum(1)


trained_case(
    "e3nn",
    "equivariant convolution",
    lambda: (_Convolution(), {"points": torch.randn(5, 3), "features": torch.randn(5, 4)}),
)
