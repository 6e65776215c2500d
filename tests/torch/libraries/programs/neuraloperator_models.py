"""neuraloperator: a Fourier neural operator."""

from __future__ import annotations

import torch
from neuralop.models import FNO

from tests.torch.libraries.cases import Made, trained_case


def _operator() -> Made:
    model = FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    return model, {"x": torch.randn(2, 1, 8, 8)}


trained_case("neuraloperator", "FNO", _operator)
