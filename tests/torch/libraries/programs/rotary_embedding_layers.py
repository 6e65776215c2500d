"""rotary-embedding-torch: rotated queries and keys."""

from __future__ import annotations

from typing import Any

import torch
from rotary_embedding_torch import RotaryEmbedding
from torch import nn
from torch.nn import functional as F

from tests.torch.libraries.cases import trained_case


class _Rotated(nn.Module):
    """Attention with rotary positions."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.projected, self.rotary = nn.Linear(16, 48), RotaryEmbedding(dim=8, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return attended values."""
        q, k, v = (p.unflatten(-1, (2, 8)).transpose(1, 2) for p in self.projected(x).chunk(3, -1))
        q, k = self.rotary.rotate_queries_or_keys(q), self.rotary.rotate_queries_or_keys(k)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


trained_case("rotary-embedding-torch", "attention", lambda: (_Rotated(), {"x": torch.randn(2, 7, 16)}))
trained_case(
    "rotary-embedding-torch",
    "attention, learned frequencies",
    lambda: (_Rotated(learned_freq=True), {"x": torch.randn(2, 7, 16)}),
)
