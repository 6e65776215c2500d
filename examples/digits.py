"""The handwritten digits of scikit-learn, for the examples: 1797 gray images of 8 x 8 pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import polyhal as ph
from polyhal.data import DataLoader, TensorDataset


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return images (N, 1, 8, 8) in [0, 1] with labels: 80 % for training, 20 % for testing."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    splits = train_test_split(images, labels.astype(np.int32), test_size=0.2, random_state=0, stratify=labels)
    return TensorDataset(splits[0], splits[2]), TensorDataset(splits[1], splits[3])


def batches(loader: DataLoader, steps: int) -> Iterator[Any]:
    """Yield batches for that many steps, and restart at the end of the data."""
    return islice(chain.from_iterable(repeat(loader)), steps)


def train(
    model: ph.nn.Module, optimizer: ph.optim.Optimizer, scheduler: ph.optim.Scheduler, loader: DataLoader, steps: int
) -> None:
    """Minimize the cross entropy, and print it every 50 steps."""
    for step, (images, labels) in enumerate(batches(loader, steps), 1):
        loss = ph.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:  # not in each step: reading waits for the device
            print(f"step {step:3d}  loss {loss.item():.4f}  learning rate {scheduler.get_last_lr()[0]:.5f}")


def accuracy(model: Callable[[ph.Tensor], ph.Tensor], data: TensorDataset, device: ph.Device) -> float:
    """Return the fraction of samples that are classified correctly."""
    with ph.no_grad():
        logits = model(ph.tensor(data.arrays[0], device=device))
    return float((logits.numpy().argmax(1) == data.arrays[1]).mean())


def draw_images(picture: str, rows: dict[str, np.ndarray]) -> None:
    """Draw rows of gray images, each with its title, in a PNG file."""
    from matplotlib import pyplot as plt

    columns = max(len(images) for images in rows.values())
    figure, axes = plt.subplots(len(rows), columns, figsize=(0.5 * columns + 1.2, 0.5 * len(rows)), squeeze=False)
    for line, (title, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(title, rotation=0, ha="right", va="center")
    figure.subplots_adjust(1.2 / (0.5 * columns + 1.2), 0.01, 0.99, 0.99, 0.06, 0.06)
    figure.savefig(picture, dpi=80)
