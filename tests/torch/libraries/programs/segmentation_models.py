"""segmentation-models-pytorch: a UNet with a Dice loss."""

from __future__ import annotations

from typing import Any

import segmentation_models_pytorch as smp
import torch

from tests.torch.libraries.cases import Made, sgd, trained_case


def _unet() -> Made:
    model = smp.Unet("resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(16, 8, 8), classes=2)
    return model, {"x": torch.randn(2, 3, 32, 32), "y": torch.randint(2, (2, 32, 32))}


def _segmented(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return smp.losses.DiceLoss("multiclass")(model(inputs["x"]), inputs["y"])


trained_case("segmentation-models-pytorch", "Unet with its loss", _unet, _segmented, optimizer=sgd)
