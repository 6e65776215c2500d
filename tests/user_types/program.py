"""A typical program of a user: `tools/user_types.py` checks its types strictly, with Polyhal as an installed package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import polyhal as ph
from polyhal import Device, Tensor, data, nn, optim
from polyhal.nn import functional as F
from polyhal.optim.lr_scheduler import CosineAnnealingLR


class Residual(nn.Module):
    """A block with a skip connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.down(F.gelu(self.up(self.norm(x))))
        return x + change


def classifier(features: int, classes: int, device: Device) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(features, 32), Residual(32), nn.ReLU(), nn.Linear(32, classes)]
    return nn.Sequential(*layers).to(device)


def batches(x: npt.NDArray[np.float32], y: npt.NDArray[np.int64], device: Device) -> Iterator[tuple[Tensor, Tensor]]:
    loader = data.DataLoader(data.TensorDataset(ph.tensor(x), ph.tensor(y)), batch_size=16, shuffle=True)
    for inputs, labels in loader:
        yield inputs.to(device), labels.to(device)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with ph.no_grad():
        predicted = model(x).argmax(axis=-1)
    return float((predicted == y).astype(ph.float32).mean().item())


def main(folder: Path) -> float:
    device = ph.Device.default()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 8)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.int64)
    ph.manual_seed(0)
    model = classifier(8, 2, device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    schedule = CosineAnnealingLR(optimizer, T_max=5)

    @ph.jit
    def step(inputs: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses: list[float] = []
    for _ in range(5):
        for inputs, labels in batches(x, y, device):
            losses.append(float(step(inputs, labels).item()))
        schedule.step()
    ph.save(model.state_dict(), folder / "model")
    model.load_state_dict(ph.load(folder / "model"))
    picked = ph.where(ph.ones((3, 2)) > 0, ph.zeros((3, 2)), ph.arange(2).astype(ph.float32))[1:, ..., None]
    top = ph.linalg.norm(picked.reshape(-1)) + ph.concat([ph.ones(2), ph.zeros(2)]).sum()
    shape: tuple[int, ...] = picked.shape
    host: npt.NDArray[np.generic] = top.numpy()
    print(f"{device}: {losses[-1]:.3f}, {shape}, {host}")
    return accuracy(model, ph.tensor(x, device=device), ph.tensor(y, device=device))


if __name__ == "__main__":
    main(Path("."))
