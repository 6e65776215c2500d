"""sentence-transformers: pooled embeddings with a loss."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import models, util
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _pooled() -> Made:
    layers = [models.Pooling(16, pooling_mode="mean"), models.Dense(16, 8), models.Normalize()]
    mask = torch.ones(4, 6, dtype=torch.int64)
    mask[1:3, 4:] = 0
    return nn.ModuleList(layers), {"token_embeddings": torch.randn(2, 4, 6, 16), "attention_mask": mask}


def _ranked(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the loss of pairs, ranked among the others of the batch."""
    first, second = (_embedded(model, x, inputs["attention_mask"]) for x in inputs["token_embeddings"])
    scores = 20 * util.cos_sim(first, second)
    return nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def _embedded(model: Any, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    features: dict[str, torch.Tensor] = {"token_embeddings": tokens, "attention_mask": mask}
    for layer in model:
        features = layer(features)
    return features["sentence_embedding"]


trained_case("sentence-transformers", "ranking of pairs", _pooled, _ranked)
