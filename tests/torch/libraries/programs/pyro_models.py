"""Pyro: variational inference of a regression, at a point."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoDelta
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


class _Regression(nn.Module):
    """The evidence of a Bayesian regression and its guide."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        pyro.clear_param_store()
        self.guide = AutoDelta(self.model)
        self.guide(x, x.sum(1))

    def model(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Draw weights, and observe."""
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), x.new_ones(3)).to_event(1))
        scale = pyro.sample("scale", dist.LogNormal(x.new_zeros(()), x.new_ones(())))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ weights, scale), obs=y)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the negative evidence."""
        return Trace_ELBO().differentiable_loss(self.model, self.guide, x, y)


def _regression() -> Made:
    x = torch.randn(10, 3)
    return _Regression(x), {"x": x, "y": x.sum(1) + 0.1 * torch.randn(10)}


trained_case("pyro-ppl", "regression at a point", _regression)
