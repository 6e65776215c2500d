"""pytorch-msssim: similarity of images.

Windows are arguments: the library's own are float32 in a run in float64, too, which would then be nearest to programs with the
CPU's rounding of them. The model has no bias, because the terms of its gradient cancel.
"""

from __future__ import annotations

from typing import Any

import torch
from pytorch_msssim import ms_ssim, ssim
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _window(size: int) -> torch.Tensor:
    """Return the weights of a normal distribution with deviation 1.5, whose sum is 1."""
    distance = torch.arange(size, dtype=torch.float64) - size // 2
    weights = torch.exp(-distance.square() / 4.5)
    return (weights / weights.sum()).reshape(1, 1, 1, size)


def _images() -> Made:
    images = {"x": torch.rand(1, 1, 48, 48), "y": torch.rand(1, 1, 48, 48)}
    return nn.Conv2d(1, 1, 3, padding=1, bias=False), {**images, "wide": _window(11), "narrow": _window(3)}


def _likeness(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    x, y = model(inputs["x"]).sigmoid(), inputs["y"]
    return ssim(x, y, 1.0, win=inputs["wide"]), ms_ssim(x, y, 1.0, win=inputs["narrow"])


trained_case("pytorch-msssim", "SSIM at scales", _images, _likeness)
