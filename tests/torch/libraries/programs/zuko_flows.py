"""zuko: a normalizing flow."""

from __future__ import annotations

from typing import Any

import torch
import zuko

from tests.torch.libraries.cases import Made, trained_case


def _flow(kind: Any) -> Made:
    return kind(features=3, context=2, transforms=2, hidden_features=(16,)), {
        "x": torch.randn(8, 3),
        "c": torch.randn(8, 2),
    }


def _likelihood(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return -model(inputs["c"]).log_prob(inputs["x"]).mean()


trained_case("zuko", "masked autoregressive flow", lambda: _flow(zuko.flows.MAF), _likelihood)
trained_case("zuko", "neural spline flow", lambda: _flow(zuko.flows.NSF), _likelihood)
