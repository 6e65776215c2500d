"""entmax: sparse alternatives of softmax."""

from __future__ import annotations

from typing import Any

import torch
from entmax import entmax15, entmax_bisect, sparsemax
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _sparse(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    x = model(inputs["x"])
    return sparsemax(x, dim=-1), entmax15(x, dim=-1), entmax_bisect(x, alpha=1.3, dim=-1)


def _layer() -> Made:
    return nn.Linear(6, 8), {"x": torch.randn(4, 6)}


trained_case("entmax", "sparse softmax", _layer, _sparse)
