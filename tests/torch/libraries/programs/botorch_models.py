"""botorch: an acquisition function, with the gradient of its candidates."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition import ExpectedImprovement, UpperConfidenceBound
from botorch.models import SingleTaskGP
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


class _Candidates(nn.Module):
    """Candidates that ascend an acquisition function of a fitted process."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        x = torch.rand(8, 2)
        self.process = SingleTaskGP(x, (x[:, :1] - 0.3).square() + x[:, 1:].sin()).requires_grad_(False).eval()
        self.points, self.kind, self.options = nn.Parameter(torch.rand(3, 1, 2)), kind, options

    def forward(self) -> torch.Tensor:
        """Return the values of the candidates, negative."""
        return -self.kind(self.process, **self.options)(self.points)


def _improvement() -> Made:
    return _Candidates(ExpectedImprovement, best_f=0.5), {}


trained_case("botorch", "ExpectedImprovement", _improvement)
trained_case("botorch", "UpperConfidenceBound", lambda: (_Candidates(UpperConfidenceBound, beta=0.2), {}))
