"""perceiver-pytorch: Perceiver."""

from __future__ import annotations

import torch
from perceiver_pytorch import Perceiver

from tests.torch.libraries.cases import Made, trained_case


def _perceiver() -> Made:
    model = Perceiver(
        num_freq_bands=3,
        depth=2,
        max_freq=8.0,
        input_channels=3,
        num_latents=6,
        latent_dim=16,
        latent_heads=2,
        latent_dim_head=8,
        cross_dim_head=8,
        num_classes=4,
    )
    return model, {"data": torch.randn(2, 4, 4, 3)}


trained_case("perceiver-pytorch", "Perceiver", _perceiver)
