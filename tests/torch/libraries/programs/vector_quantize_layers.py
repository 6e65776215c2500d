"""vector-quantize-pytorch: quantizers with codebooks and without."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ, VectorQuantize

from tests.torch.libraries.cases import Made, trained_case


class _Coded(nn.Module):
    """A small autoencoder around a quantizer."""

    def __init__(self, quantizer: nn.Module, size: int) -> None:
        super().__init__()
        self.encoder, self.decoder, self.quantizer = nn.Linear(8, size), nn.Linear(size, 8), quantizer

    def forward(self, x: torch.Tensor) -> Any:
        """Return the decoded input and the quantizer's other results."""
        quantized, *others = self.quantizer(self.encoder(x))
        return self.decoder(quantized), others


def _coded(quantizer: nn.Module, size: int = 4) -> Made:
    return _Coded(quantizer, size), {"x": torch.randn(2, 6, 8)}


trained_case("vector-quantize-pytorch", "VectorQuantize", lambda: _coded(VectorQuantize(dim=4, codebook_size=16)))
trained_case(
    "vector-quantize-pytorch",
    "ResidualVQ",
    lambda: _coded(ResidualVQ(dim=4, num_quantizers=2, codebook_size=16)),
)
trained_case("vector-quantize-pytorch", "FSQ", lambda: _coded(FSQ(levels=[8, 5, 5]), 3))
trained_case("vector-quantize-pytorch", "LFQ", lambda: _coded(LFQ(codebook_size=16, dim=4)))
