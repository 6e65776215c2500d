"""nflows: a flow of couplings."""

from __future__ import annotations

from typing import Any

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
from nflows.transforms.base import CompositeTransform
from nflows.transforms.permutations import ReversePermutation

from tests.torch.libraries.cases import Made, trained_case


def _flow() -> Made:
    steps = [ReversePermutation(3), MaskedAffineAutoregressiveTransform(3, 12)] * 2
    return Flow(CompositeTransform(steps), StandardNormal([3])), {"x": torch.randn(8, 3)}


def _likelihood(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return -model.log_prob(inputs["x"]).mean()


trained_case("nflows", "affine autoregressive flow", _flow, _likelihood)
