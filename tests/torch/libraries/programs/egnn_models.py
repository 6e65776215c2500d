"""egnn-pytorch: an equivariant network of points."""

from __future__ import annotations

import torch
from egnn_pytorch import EGNN_Network

from tests.torch.libraries.cases import Made, trained_case


def _network() -> Made:
    model = EGNN_Network(num_tokens=10, num_positions=8, dim=8, depth=2, num_nearest_neighbors=3)
    return model, {"feats": torch.randint(10, (1, 8)), "coors": torch.randn(1, 8, 3)}


trained_case("egnn-pytorch", "EGNN_Network", _network)
