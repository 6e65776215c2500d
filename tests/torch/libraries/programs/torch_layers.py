"""PyTorch's own layers, as programs build them."""

from __future__ import annotations

import torch
from torch import nn

from tests.torch.libraries.cases import trained_case


class _Recurrent(nn.Module):
    """A language model of a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.recurrent = nn.GRU(16, 16, num_layers=2, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of the next tokens."""
        return self.head(self.recurrent(self.embedding(tokens))[0])


class _Translation(nn.Module):
    """A model of two sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        """Return the decoder's outputs."""
        mask = self.layers.generate_square_subsequent_mask(tgt.shape[1], tgt.device)
        return self.layers(src, tgt, tgt_mask=mask, tgt_is_causal=True)


trained_case("torch", "GRU", lambda: (_Recurrent(), {"tokens": torch.randint(20, (4, 6))}))
trained_case(
    "torch", "transformer", lambda: (_Translation(), {"src": torch.randn(3, 7, 16), "tgt": torch.randn(3, 5, 16)})
)
