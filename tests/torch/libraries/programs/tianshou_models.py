"""tianshou: a dueling network."""

from __future__ import annotations

import torch
from tianshou.utils.net.common import MLP

from tests.torch.libraries.cases import Made, trained_case


def _network() -> Made:
    model = MLP(input_dim=4, output_dim=3, hidden_sizes=[16, 16])
    return model, {"obs": torch.randn(8, 4)}


trained_case("tianshou", "MLP", _network)
