"""Digits of 8 x 8 pixels from their halves: convolutions, and a shuffle of channels into pixels."""

from __future__ import annotations

import torch
from torch import nn, optim
from torch.nn import functional as F

from tests.torch.programs.data import batches, digits


def losses(device: str, steps: int) -> list[float]:
    """Train with Adam on the mean square."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5, 1, 2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(32, 4, 3, 1, 1),
        nn.PixelShuffle(2),
    )
    for layer in list(model)[0:4:2]:
        nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
    model.to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    images = digits()[0]
    found = []
    for small, large in batches(F.interpolate(images, scale_factor=0.5, mode="bilinear"), images, size=32, steps=steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(small.to(device)), large.to(device))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
