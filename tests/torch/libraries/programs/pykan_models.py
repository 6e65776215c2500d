"""pykan: a Kolmogorov-Arnold network."""

from __future__ import annotations

import torch
from kan import KAN

from tests.torch.libraries.cases import Made, trained_case


def _network() -> Made:
    model = KAN(width=[2, 3, 1], grid=3, k=3, seed=0, auto_save=False, symbolic_enabled=False)
    model.save_act = False
    return model, {"x": torch.rand(10, 2) * 2 - 1}


trained_case("pykan", "KAN", _network)
