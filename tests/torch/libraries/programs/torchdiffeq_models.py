"""torchdiffeq: neural differential equations, by fixed and by adaptive steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

from tests.torch.libraries.cases import trained_case


class _Flow(nn.Module):
    """A differential equation and its solution."""

    def __init__(self, solve: Any, **options: Any) -> None:
        super().__init__()
        self.field = _Field()
        self.solve, self.options = solve, options

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Return the solution at the times."""
        return self.solve(self.field, x, times, **self.options)


class _Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the derivative."""
        return self.layers(x)


def _inputs() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(4, 2), "times": torch.linspace(0, 1, 4)}


trained_case("torchdiffeq", "odeint, rk4", lambda: (_Flow(odeint, method="rk4"), _inputs()))
trained_case("torchdiffeq", "odeint_adjoint, dopri5", lambda: (_Flow(odeint_adjoint, rtol=1e-3, atol=1e-4), _inputs()))
