"""segment-anything: SAM of a small size."""

from __future__ import annotations

from typing import Any

import torch
from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, TwoWayTransformer
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _sam() -> Made:
    parts = {
        "encoder": ImageEncoderViT(
            img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, out_chans=16, window_size=2, use_rel_pos=True
        ),
        "prompts": PromptEncoder(16, (4, 4), (32, 32), 8),
        "decoder": MaskDecoder(transformer_dim=16, transformer=TwoWayTransformer(1, 16, 2, 32)),
    }
    points = {"points": 32 * torch.rand(1, 2, 2), "labels": torch.tensor([[1, 0]])}
    return nn.ModuleDict(parts), {"image": torch.randn(1, 3, 32, 32), **points}


def _segmented(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    sparse, dense = model["prompts"]((inputs["points"], inputs["labels"]), None, None)
    features, positions = model["encoder"](inputs["image"]), model["prompts"].get_dense_pe()
    return model["decoder"](features, positions, sparse, dense, True)


trained_case("segment-anything", "SAM", _sam, _segmented)
