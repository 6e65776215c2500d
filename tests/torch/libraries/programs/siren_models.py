"""siren-pytorch: a network of sines."""

from __future__ import annotations

import torch
from siren_pytorch import SirenNet

from tests.torch.libraries.cases import Made, trained_case


def _sines() -> Made:
    return SirenNet(dim_in=2, dim_hidden=16, dim_out=3, num_layers=2), {"x": torch.rand(10, 2)}


trained_case("siren-pytorch", "SirenNet", _sines)
