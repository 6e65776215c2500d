"""A generator of digits and a critic that learn from each other: transposed convolutions and batch norms."""

from __future__ import annotations

import torch
from torch import nn, optim

from tests.torch.programs.data import batches, digits

_NOISE = 16


def _generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(_NOISE, 32, 4, 1, 0, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def _critic() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
        nn.Flatten(0),
    )


def _initialize(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def losses(device: str, steps: int) -> list[float]:
    """Train both with Adam; the losses of both in turn."""
    torch.manual_seed(1)
    generator, critic = _generator().apply(_initialize).to(device), _critic().apply(_initialize).to(device)
    criterion = nn.BCELoss()
    of_critic = optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_generator = optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    source = torch.Generator().manual_seed(2)
    found = []
    for (data,) in batches(digits()[0] * 2 - 1, size=32, steps=steps):
        real = torch.full((32,), 1.0, device=device)
        noise = torch.randn(32, _NOISE, 1, 1, generator=source).to(device)
        critic.zero_grad()
        loss_real = criterion(critic(data.to(device)), real)
        loss_real.backward()
        fake = generator(noise)
        loss_fake = criterion(critic(fake.detach()), torch.zeros_like(real))
        loss_fake.backward()
        of_critic.step()
        generator.zero_grad()
        loss = criterion(critic(fake), real)
        loss.backward()
        of_generator.step()
        found += [(loss_real + loss_fake).item(), loss.item()]
    return found
