"""Adapt a trained network with low-rank adapters (LoRA; Hu et al., arXiv:2106.09685).

A classifier of handwritten digits is adapted to digits rotated by 90 degrees. Its weights W stay frozen; each is replaced by
W + B A with two thin trainable matrices, as a parametrization. Finally the adapters are merged into the weights, which restores
an ordinary network.

python examples/lora.py
"""

import argparse

import numpy as np
from digits import digits

import polyhal as ph
from polyhal import nn, optim
from polyhal.nn.utils import parametrize


class LoRA(nn.Module):
    """Parametrization of a weight (out, in): adds a product of rank `rank`, initially zero."""

    def __init__(self, weight: ph.Tensor, rank: int = 4) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.a = nn.Parameter(ph.randn(rank, columns, device=weight.device) / columns**0.5)
        self.b = nn.Parameter(ph.zeros(rows, rank, device=weight.device))

    def forward(self, weight):
        return weight + self.b @ self.a


def train(model: nn.Module, x: ph.Tensor, y: ph.Tensor, steps: int, lr: float) -> None:
    """Minimize the cross entropy over the model's trainable parameters, on random batches."""
    optimizer = optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)

    @ph.jit
    def step():
        batch = ph.randint(0, len(x), (64,), device=x.device)
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(steps):
        step()


def main() -> None:
    """Train on upright digits, adapt to rotated ones, merge, and report accuracies and sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)

    (images, labels), (test_images, test_labels) = (data.arrays for data in digits())
    lying, test_lying = np.rot90(images, axes=(2, 3)).copy(), np.rot90(test_images, axes=(2, 3)).copy()
    x, x_lying, y = (ph.tensor(a, device=device) for a in (images, lying, labels))

    def accuracy(images: np.ndarray) -> float:
        with ph.no_grad():
            guess = model(ph.tensor(images, device=device)).argmax(dim=1)
        return float((guess.numpy() == test_labels).mean())

    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    ).to(device)
    train(model, x, y, args.steps, lr=2e-3)
    print(f"{device}: trained on upright digits, {accuracy(test_images):.1%} right; rotated {accuracy(test_lying):.1%}")

    model.requires_grad_(False)
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", LoRA(layer.weight))
    total, trained = model.count_parameters(), model.count_parameters(trainable_only=True)
    train(model, x_lying, y, args.steps, lr=1e-2)
    adapted = accuracy(test_lying)
    print(f"adapters of rank 4, {trained} of {total} parameters trained: {adapted:.1%} of rotated digits right")

    for layer in layers:
        parametrize.remove_parametrizations(layer, "weight")
    print(f"merged, {model.count_parameters()} parameters: {accuracy(test_lying):.1%}")


if __name__ == "__main__":
    main()
