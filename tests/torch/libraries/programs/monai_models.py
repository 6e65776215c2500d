"""MONAI: a UNet of volumes with a Dice loss."""

from __future__ import annotations

from typing import Any

import torch
from monai.losses import DiceCELoss
from monai.networks.nets import UNet

from tests.torch.libraries.cases import Made, sgd, trained_case


def _unet() -> Made:
    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1)
    return model, {"x": torch.randn(1, 1, 8, 8, 8), "y": torch.randint(2, (1, 1, 8, 8, 8))}


def _segmented(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return DiceCELoss(to_onehot_y=True, softmax=True)(model(inputs["x"]), inputs["y"])


trained_case("monai", "UNet of volumes with its loss", _unet, _segmented, optimizer=sgd)
