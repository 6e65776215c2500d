"""torchsde: a stochastic equation along a given path."""

from __future__ import annotations

import torch
import torchsde
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


class _Path:
    """Noise whose increments are fixed."""

    levy_area_approximation = "none"

    def __init__(self, increments: torch.Tensor) -> None:
        self.increments, self.shape = increments, increments.shape[1:]
        self.dtype, self.device = increments.dtype, increments.device

    def __call__(self, begin: torch.Tensor, end: torch.Tensor | None = None, **areas: bool) -> torch.Tensor:
        return self.increments[round(4 * float(begin))]


class _Equation(nn.Module):
    """An equation with diagonal noise, solved along a path of fixed increments."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self) -> None:
        super().__init__()
        self.drift, self.diffusion = nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("increments", 0.3 * torch.randn(4, 3, 2))

    def f(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the drift."""
        return self.drift(x)

    def g(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the diffusion."""
        return self.diffusion(x).sigmoid()

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Return the solution at the times."""
        return torchsde.sdeint(self, x, times, bm=_Path(self.increments), dt=0.25, method="euler")


def _equation() -> Made:
    return _Equation(), {"x": torch.randn(3, 2), "times": torch.tensor([0.0, 0.5, 1.0])}


trained_case("torchsde", "sdeint, Euler", _equation)
