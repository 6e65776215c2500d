"""open_clip: CLIP with its loss."""

from __future__ import annotations

from typing import Any

import open_clip
import torch

from tests.torch.libraries.cases import Made, trained_case


def _clip() -> Made:
    model = open_clip.model.CLIP(
        embed_dim=16,
        vision_cfg={"layers": 2, "width": 32, "head_width": 16, "patch_size": 4, "image_size": 16},
        text_cfg={"context_length": 8, "vocab_size": 40, "width": 32, "heads": 2, "layers": 2},
    )
    return model, {"image": torch.randn(3, 3, 16, 16), "text": torch.randint(40, (3, 8))}


def _contrasted(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return open_clip.ClipLoss()(*model(**inputs))


trained_case("open_clip_torch", "CLIP with its loss", _clip, _contrasted)
