"""A convolutional network that reads digits."""

from __future__ import annotations

import torch
from torch import nn, optim
from torch.nn import functional as F

from tests.torch.programs.data import batches, digits


class Net(nn.Module):
    """Two convolutions and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, 1), nn.Conv2d(16, 32, 3, 1)
        self.fc1, self.fc2 = nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logarithms of probabilities."""
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(F.max_pool2d(x, 2), 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def losses(device: str, steps: int) -> list[float]:
    """Train with Adadelta and a falling learning rate."""
    torch.manual_seed(1)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=50, gamma=0.7)
    found = []
    for data, target in batches(*digits(), size=64, steps=steps):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        found.append(loss.item())
    return found
