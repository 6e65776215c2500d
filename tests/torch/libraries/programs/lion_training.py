"""lion-pytorch: its optimizer."""

from __future__ import annotations

from typing import Any

import torch
from lion_pytorch import Lion
from torch import nn

from tests.torch.libraries.cases import trained_case


def _lion(parameters: Any) -> torch.optim.Optimizer:
    return Lion(parameters, lr=1e-3, weight_decay=1e-2)


trained_case(
    "lion-pytorch",
    "Lion",
    lambda: (nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), {"input": torch.randn(5, 6)}),
    optimizer=_lion,
)
