"""einops: rearrangements as layers."""

from __future__ import annotations

import torch
from einops import einsum, rearrange, repeat
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _patches() -> Made:
    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        nn.Linear(48, 16),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=16, d=8),
        nn.GELU(),
        Reduce("b t d -> b d", "mean"),
    )
    return model, {"input": torch.randn(2, 3, 8, 8)}


class _Heads(nn.Module):
    """Attention with groups of heads, in einops' notation."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return attended values."""
        q = rearrange(self.queries(x), "b t (h d) -> b h t d", h=4)
        k = repeat(rearrange(self.keys(x), "b t (h d) -> b h t d", h=2), "b h t d -> b (h g) t d", g=2)
        weights = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
        return rearrange(einsum(weights, k, "b h i j, b h j d -> b h i d"), "b h t d -> b t (h d)")


trained_case("einops", "patches", _patches)
trained_case("einops", "grouped heads", lambda: (_Heads(), {"x": torch.randn(2, 5, 16)}))
