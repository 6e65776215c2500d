"""Fine-tune a saved network: load its weights into a model with a new head, and train on few images.

A convolutional network learns to read digits and is saved. To tell odd digits from even ones, its layers are loaded
with `strict=False` into a model with a new head, which is trained on one image of each digit. It is compared with the
same model trained from scratch; chance is 50 %.

python examples/finetune.py
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from digits import digits

import polyhal as ph
from polyhal import nn, optim

FEW = 1


class Net(nn.Module):
    """Model from images (N, 1, 8, 8) to logits (N, classes)."""

    def __init__(self, head: str, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, 64),
            nn.ReLU(),
        )
        self.heads = nn.ModuleDict({head: nn.Linear(64, classes)})

    def forward(self, x):
        x = self.features(x)
        return next(iter(self.heads.values()))(x)


def train(model: Net, images: np.ndarray, labels: np.ndarray, steps: int, device: ph.Device) -> None:
    """Minimize the cross entropy of all parameters that are not frozen, on random batches."""
    x, y = ph.tensor(images, device=device), ph.tensor(labels, device=device)
    optimizer = optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)

    @ph.jit
    def step():
        batch = ph.randint(0, len(x), (32,), device=device)
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    model.train()
    for _ in range(steps):
        step()
    model.eval()


def accuracy(model: Net, images: np.ndarray, labels: np.ndarray, device: ph.Device) -> float:
    """Return the fraction of correctly classified images."""
    with ph.no_grad():
        return float((model(ph.tensor(images, device=device)).argmax(dim=1).numpy() == labels).mean())


def main() -> None:
    """Train, save, load, fine-tune, and compare with training from scratch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)
    (images, labels), (test_images, test_labels) = (data.arrays for data in digits())
    few = np.concatenate([np.flatnonzero(labels == digit)[:FEW] for digit in range(10)])

    model = Net("digit", 10).to(device)
    train(model, images, labels, args.steps, device)
    print(f"{device}: {accuracy(model, test_images, test_labels, device):.1%} of digits read correctly")

    tuned, scratch = Net("odd", 2).to(device), Net("odd", 2).to(device)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.safetensors"  # or digits.pt, PyTorch's format
        ph.save(model.state_dict(), file)
        print(f"saved {file.stat().st_size} bytes")
        difference = tuned.load_state_dict(ph.load(file, device=device), strict=False)
    print(f"loaded; missing: {difference.missing_keys}, not used: {difference.unexpected_keys}")
    tuned.features.requires_grad_(False)  # only the head learns; with more images, unfreeze

    for name, net in {"fine-tuned": tuned, "from scratch": scratch}.items():
        before = accuracy(net, test_images, test_labels % 2, device)
        train(net, images[few], labels[few] % 2, args.steps, device)
        after = accuracy(net, test_images, test_labels % 2, device)
        print(f"{name:12}: odd or even, {before:.1%} right before and {after:.1%} after training on {len(few)} images")


if __name__ == "__main__":
    main()
