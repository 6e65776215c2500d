"""diffusers: a UNet, an autoencoder, and a few steps of denoising."""

from __future__ import annotations

from typing import Any

import diffusers
import torch

from tests.torch.libraries.cases import Made, computed_case, trained_case


def _unet() -> Made:
    model = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=8,
    )
    return model, {
        "sample": torch.randn(2, 3, 8, 8),
        "timestep": torch.tensor([3, 30]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
    }


def _vae() -> Made:
    model = diffusers.AutoencoderKL(
        in_channels=3,
        out_channels=3,
        latent_channels=2,
        norm_num_groups=8,
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    return model, {"sample": torch.randn(2, 3, 16, 16)}


trained_case("diffusers", "UNet2DConditionModel", _unet)
trained_case("diffusers", "AutoencoderKL", _vae)


def _denoise(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=50)
    x = inputs["sample"]
    scheduler.set_timesteps(4, device=x.device)
    for t in scheduler.timesteps:
        x = scheduler.step(model(x, t, encoder_hidden_states=inputs["encoder_hidden_states"]).sample, t, x).prev_sample
    return x


computed_case("diffusers", "denoising by DDIM", _unet, _denoise)
