"""timm: ten architectures."""

from __future__ import annotations

import timm
import torch

from tests.torch.libraries.cases import Made, trained_case

_TIMM = {
    "resnet18": {},
    "convnext_atto": {},
    "efficientnet_b0": {"drop_rate": 0.0, "drop_path_rate": 0.0},
    "mobilenetv3_small_050": {"drop_rate": 0.0},
    "vit_tiny_patch16_224": {"img_size": 32},
    "deit_tiny_patch16_224": {"img_size": 32},
    "mixer_s32_224": {"img_size": 64},
    "regnetx_002": {},
    "densenet121": {},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "window_size": 7, "drop_path_rate": 0.0},
}


def _images(size: int) -> torch.Tensor:
    return torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(2))


def _timm(name: str, options: dict[str, object]) -> None:
    def make() -> Made:
        model = timm.create_model(name, pretrained=False, num_classes=5, **options)
        return model, {"x": _images(int(str(options.get("img_size", 64))))}

    trained_case("timm", name, make)


for _name, _options in _TIMM.items():
    _timm(_name, _options)
