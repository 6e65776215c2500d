"""A variational autoencoder of digits."""

from __future__ import annotations

import torch
from torch import nn, optim
from torch.nn import functional as F

from tests.torch.programs.data import batches, digits


class VAE(nn.Module):
    """A layer each way around eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mean, self.logvar = nn.Linear(64, 48), nn.Linear(48, 8), nn.Linear(48, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 64), nn.Sigmoid())

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Reconstruction, means and logarithms of variances."""
        hidden = F.relu(self.encoder(x))
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        return self.decoder(mean + noise * torch.exp(0.5 * logvar)), mean, logvar


def losses(device: str, steps: int) -> list[float]:
    """Train with Adam on the evidence lower bound."""
    torch.manual_seed(1)
    model = VAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(2)
    found = []
    for (data,) in batches(digits()[0].flatten(1), size=64, steps=steps):
        data, noise = data.to(device), torch.randn(64, 8, generator=generator).to(device)
        optimizer.zero_grad()
        reconstruction, mean, logvar = model(data, noise)
        loss = F.binary_cross_entropy(reconstruction, data, reduction="sum")
        loss = loss - 0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
