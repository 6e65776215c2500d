"""Data for the programs: scikit-learn's digits, and the text of a module of Python."""

from __future__ import annotations

import codecs
import contextlib
import io
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, TensorDataset

NAMES = (
    "convolutional",
    "autoencoder",
    "adversarial",
    "word_model",
    "super_resolution",
    "policy_gradient",
    "patch_transformer",
)
"""The programs."""


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """1797 images of 1 x 8 x 8 pixels from 0 to 1, and their labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)


def batches(*tensors: torch.Tensor, size: int, steps: int) -> Iterator[list[torch.Tensor]]:
    """Shuffled batches of the CPU, the same in each run, for a number of steps."""
    loader = DataLoader(
        TensorDataset(*tensors), size, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(0)
    )
    while True:
        for batch in loader:
            if not steps:
                return
            steps -= 1
            yield batch


def words() -> tuple[torch.Tensor, int]:
    """Return the Zen of Python as numbers of words, and how many words there are."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    text = codecs.decode(this.s, "rot13").lower().split()
    vocabulary = sorted(set(text))
    return torch.tensor([vocabulary.index(word) for word in text]), len(vocabulary)
