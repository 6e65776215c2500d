"""gpytorch: an exact Gaussian process."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch

from tests.torch.libraries.cases import Made, trained_case


class _Process(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))

    def forward(self, x: torch.Tensor) -> Any:
        """Return the prior at points."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _process() -> Made:
    x = torch.rand(12, 2)
    y = torch.sin(3 * x[:, 0]) + x[:, 1]
    return _Process(x, y), {"x": x, "y": y}


def _evidence(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the negative marginal likelihood of the data."""
    model.set_train_data(inputs["x"], inputs["y"], strict=False)
    return -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(inputs["x"]), inputs["y"])


trained_case("gpytorch", "exact process", _process, _evidence)
