"""A transformer that reads digits as sixteen patches."""

from __future__ import annotations

import torch
from torch import nn, optim
from torch.nn import functional as F

from tests.torch.programs.data import batches, digits


class PatchTransformer(nn.Module):
    """Patches of 2 x 2 pixels, a token for the class, two layers of attention."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Linear(4, width)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of ten classes."""
        patches = images.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4).flatten(1, 3)
        x = torch.cat([self.token.expand(len(images), -1, -1), self.patches(patches)], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


def losses(device: str, steps: int) -> list[float]:
    """Train with AdamW and a cosine of the learning rate."""
    torch.manual_seed(1)
    model = PatchTransformer().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    found = []
    for images, labels in batches(*digits(), size=32, steps=steps):
        loss = F.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        found.append(loss.item())
    return found
