"""A tiny language model and its trainer, equal in the test's process and in the processes of a job."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from polyhal import random
from polyhal.hal.device import Device
from polyhal.models import GPT, GPTConfig
from polyhal.text import CharTokenizer
from polyhal.training import Corpus, Ranks, Trainer, TrainOptions

OPTIONS = TrainOptions(layers=2, heads=2, width=16, context=16, batch_size=7, accumulate=2, steps=20, warmup=2)
"""Options with a batch of seven windows, which is not a multiple of any number of ranks."""
CORPUS = Corpus("none", "none", "abcdefghij")
TOKENIZER = CharTokenizer.train(CORPUS.text)


_RANDOM = threading.Lock()
"""Lock for ranks that are threads: they share one random generator."""


def trainer(ranks: Ranks | None = None, dropout: float = 0.0, *, eager: bool = False, **options: Any) -> Trainer:
    """Make a trainer on the NumPy device, with equal weights and data in every process."""
    with _RANDOM:
        random.manual_seed(0)
        model = GPT(GPTConfig(30, 16, 2, 2, 16, dropout), device=Device("numpy"))
    tokens = np.random.default_rng(0).integers(0, 30, 3000).astype(np.int32)
    return Trainer(model, OPTIONS.with_changes(**options), tokens[:2500], tokens[2500:], ranks=ranks, eager=eager)


def steps(trained: Trainer, count: int) -> list[float]:
    """Take steps. Returns the loss of each."""
    losses = []
    for _ in range(count):
        trained.step()
        losses.append(trained.mean_loss())
    return losses


def weights(trained: Trainer) -> np.ndarray:
    """Return all parameters as one vector."""
    return np.concatenate([x.numpy().ravel() for x in trained.model.state_dict().values()])
