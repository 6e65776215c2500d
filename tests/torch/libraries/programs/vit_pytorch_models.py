"""vit-pytorch: two of its vision transformers."""

from __future__ import annotations

import torch
from vit_pytorch import SimpleViT
from vit_pytorch.vit import ViT

from tests.torch.libraries.cases import Made, trained_case

_SIZES = {"image_size": 16, "patch_size": 4, "num_classes": 5, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 48}


def _images() -> dict[str, torch.Tensor]:
    return {"img": torch.randn(2, 3, 16, 16)}


def _simple() -> Made:
    return SimpleViT(**_SIZES), _images()


trained_case("vit-pytorch", "ViT", lambda: (ViT(**_SIZES), _images()))
trained_case("vit-pytorch", "SimpleViT", _simple)
