"""Write a page that reads digits which you draw, and learns from them, in a browser without Python.

A small convolutional network is trained here for a moment and exported with three steps that share its weights: one image to
the probabilities of the digits, a training step with Adam, and the accuracy on images that no training sees.

python examples/export_digits.py digits.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from digits import digits

import polyhal as ph
from polyhal import export, nn, optim
from polyhal.nn import functional as F

BATCH, TESTED = 32, 360


def network() -> nn.Sequential:
    """Return a model from images (N, 1, 8, 8) to logits (N, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", default=Path("digits.html"), help="a file .html, or a folder")
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)
    training, test = digits()
    (images, labels), (test_images, test_labels) = training.arrays, test.arrays
    model = network().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=2e-3)

    @ph.jit
    def train(image, label):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(image), label)
        loss.backward()
        optimizer.step()
        return loss

    @ph.jit
    def classify(image):
        return F.softmax(model(image), -1)

    @ph.jit
    def evaluate(image, label):
        return (model(image).argmax(-1).to(ph.int32) == label).to(ph.float32).mean()

    generator = np.random.default_rng(0)
    for _ in range(max(args.steps, 3)):
        chosen = generator.integers(0, len(images), BATCH)
        batch = ph.tensor(images[chosen], device=device), ph.tensor(labels[chosen], device=device)
        loss = train(*batch)
    with ph.no_grad():
        for _ in range(3):
            classify(ph.tensor(test_images[:1], device=device))
            accuracy = evaluate(
                ph.tensor(test_images[:TESTED], device=device), ph.tensor(test_labels[:TESTED], device=device)
            )
    print(f"{device}: loss {loss.item():.4f}, test accuracy {accuracy.item():.2%}")
    data = {
        "images": np.rint(images * 16).astype(int).reshape(-1, 64).tolist(),
        "labels": labels.tolist(),
        "testImages": np.rint(test_images[:TESTED] * 16).astype(int).reshape(-1, 64).tolist(),
        "testLabels": test_labels[:TESTED].tolist(),
    }
    written = export.webgpu(
        {"train": train, "classify": classify, "evaluate": evaluate},
        args.path,
        inputs={"train": ["image", "label"], "classify": ["image"], "evaluate": ["image", "label"]},
        outputs={"train": ["loss"], "classify": ["probability"], "evaluate": ["accuracy"]},
        title="Draw a digit",
        page=(Path(__file__).parent / "pages" / "digits.js").read_text(encoding="utf-8"),
        data=data,
    )
    print(f"wrote {written}: open it in a browser with WebGPU")


if __name__ == "__main__":
    main()
