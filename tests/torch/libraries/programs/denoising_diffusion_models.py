"""denoising-diffusion-pytorch: its UNet."""

from __future__ import annotations

import torch
from denoising_diffusion_pytorch import Unet

from tests.torch.libraries.cases import Made, trained_case


def _unet() -> Made:
    model = Unet(dim=8, dim_mults=(1, 2), channels=1, attn_heads=2, attn_dim_head=8)
    return model, {"x": torch.randn(2, 1, 8, 8), "time": torch.tensor([3, 40])}


trained_case("denoising-diffusion-pytorch", "Unet", _unet)
