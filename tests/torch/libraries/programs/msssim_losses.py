"""pytorch-msssim: similarity of images."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_msssim import ms_ssim, ssim
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _images() -> Made:
    return nn.Conv2d(1, 1, 3, padding=1), {"x": torch.rand(1, 1, 48, 48), "y": torch.rand(1, 1, 48, 48)}


def _likeness(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    x = model(inputs["x"]).sigmoid()
    return ssim(x, inputs["y"], data_range=1.0), ms_ssim(x, inputs["y"], data_range=1.0, win_size=3)


trained_case("pytorch-msssim", "SSIM at scales", _images, _likeness)
