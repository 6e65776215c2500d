"""prodigyopt: its optimizer."""

from __future__ import annotations

import torch
from prodigyopt import Prodigy
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _layers() -> Made:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), {"input": torch.randn(5, 6)}


trained_case("prodigyopt", "Prodigy", _layers, optimizer=lambda parameters: Prodigy(parameters, d0=1e-4))
