"""timm: ten architectures."""

from __future__ import annotations

from typing import Any

import timm
import torch

from tests.torch.libraries.cases import Made, sgd, trained_case

_TIMM: dict[str, dict[str, Any]] = {
    "resnet18": {"layers": (1, 1, 1, 1)},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
    "efficientnet_b0": {"drop_rate": 0.0, "drop_path_rate": 0.0},
    "mobilenetv3_small_050": {"drop_rate": 0.0},
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 2},
    "deit_tiny_patch16_224": {"img_size": 32, "depth": 2},
    "mixer_s32_224": {"img_size": 64},
    "regnetx_002": {},
    "densenet121": {"block_config": (2, 2, 2, 2)},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "window_size": 7, "depths": (1, 1, 1, 1), "drop_path_rate": 0.0},
}


def _timm(name: str, options: dict[str, Any]) -> None:
    def make() -> Made:
        size = options.get("img_size", 64)
        model = timm.create_model(name, pretrained=False, num_classes=5, **options)
        if name == "densenet121":  # statistics of 16 numbers make gradients that float32 has two digits of
            model.eval()
        return model, {"x": torch.randn(4, 3, size, size)}

    trained_case("timm", name, make, optimizer=sgd)


for _name, _options in _TIMM.items():
    _timm(_name, _options)
