"""Training runs compared with PyTorch's: equal weights, equal batches, and losses that must agree.

Noise (of the autoencoder, of diffusion) is part of a batch, because the frameworks draw different numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import polyhal
from benchmarks.torch_models import TorchGPT
from polyhal.models import DDPM, GPT, GPTConfig, UNet
from tests.models.parity import small_models
from tests.models.parity.comparison import load_weights_of
from tests.models.parity.torch_unet import TorchUNet

Batch = tuple[np.ndarray, ...]
_CLASSES, _VOCABULARY = 10, 65
_GPT = GPTConfig(vocab_size=_VOCABULARY, block_size=32, n_layer=2, n_head=4, n_embd=64)
_UNET = ((16, 32), (False, True))
_LEVELS = 200


@dataclass(frozen=True)
class Task:
    """A model in both frameworks, with a method `loss` that takes a batch, and how it is trained."""

    make: Callable[[], Any]
    make_reference: Callable[[], torch.nn.Module]
    batches: Callable[[np.random.Generator], Iterator[Batch]]
    optimizer: Callable[[Any, Any], Any]
    """Takes `polyhal.optim` or `torch.optim`, and parameters."""
    clip: float | None = None
    """Largest norm of the gradients."""


class DiffusionModel(UNet):
    """A U-Net with the loss of a diffusion model."""

    def __init__(self) -> None:
        super().__init__(1, None, *_UNET, layers_per_block=1, norm_num_groups=8)
        self.process = DDPM(_LEVELS)

    def loss(self, x: polyhal.Tensor, t: polyhal.Tensor, noise: polyhal.Tensor) -> polyhal.Tensor:
        return self.process.loss(self, x, t, noise)


class TorchDiffusionModel(TorchUNet):
    """A U-Net in PyTorch with the loss of a diffusion model."""

    def loss(self, x: torch.Tensor, t: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        signal = (
            torch.cumprod(1 - torch.linspace(1e-4, 0.02, _LEVELS, dtype=torch.float64), 0)[t].float().view(-1, 1, 1, 1)
        )
        return ((self(signal.sqrt() * x + (1 - signal).sqrt() * noise, t) - noise) ** 2).mean()


def _walks(rng: np.random.Generator) -> Iterator[Batch]:
    """Return tokens that depend on each other, so that there is something to learn."""
    while True:
        tokens = np.cumsum(rng.integers(0, 4, (8, 33)), axis=1) % _VOCABULARY
        yield tokens[:, :-1].copy(), tokens[:, 1:].copy()


def _digits(rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return noisy images (32, 1, 8, 8) in [0, 1] of ten patterns, and which pattern it is."""
    patterns = rng.random((_CLASSES, 8, 8))
    while True:
        y = rng.integers(0, _CLASSES, 32)
        x = np.clip(patterns[y] + 0.4 * rng.standard_normal((32, 8, 8)), 0, 1)
        yield x[:, None].astype(np.float32), y


def _with_latents(rng: np.random.Generator) -> Iterator[Batch]:
    for x, _ in _digits(rng):
        yield x.reshape(32, 64), rng.standard_normal((32, 8)).astype(np.float32)


def _with_levels(rng: np.random.Generator) -> Iterator[Batch]:
    for x, _ in _digits(rng):
        yield 2 * x[:8] - 1, rng.integers(0, _LEVELS, 8), rng.standard_normal((8, 1, 8, 8)).astype(np.float32)


TASKS: Mapping[str, Task] = {
    "LSTM": Task(
        lambda: small_models.lstm(polyhal.nn, _VOCABULARY, 64),
        lambda: small_models.lstm(torch.nn, _VOCABULARY, 64),
        _walks,
        lambda optim, p: optim.Adam(p, lr=5e-3),
        clip=1.0,
    ),
    "CNN": Task(
        lambda: small_models.cnn(polyhal.nn, 16, _CLASSES),
        lambda: small_models.cnn(torch.nn, 16, _CLASSES),
        _digits,
        lambda optim, p: optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-4),
    ),
    "GPT": Task(lambda: GPT(_GPT), lambda: TorchGPT(_GPT), _walks, lambda optim, p: optim.AdamW(p, lr=3e-3), clip=1.0),
    "VAE": Task(
        lambda: small_models.vae(polyhal.nn, 64, 64, 8),
        lambda: small_models.vae(torch.nn, 64, 64, 8),
        _with_latents,
        lambda optim, p: optim.Adam(p, lr=3e-3),
    ),
    "DDPM": Task(
        DiffusionModel,
        lambda: TorchDiffusionModel(1, *_UNET, 1, 8),
        _with_levels,
        lambda optim, p: optim.AdamW(p, lr=2e-3),
    ),
}


def torch_losses(task: Task, steps: int) -> tuple[torch.nn.Module, list[float]]:
    """Train in PyTorch. Returns the model with its first weights, and the loss of each step."""
    torch.manual_seed(0)
    first, model = task.make_reference(), task.make_reference()
    model.load_state_dict(first.state_dict())
    optimizer = task.optimizer(torch.optim, model.parameters())
    losses = []
    for batch, _ in zip(task.batches(np.random.default_rng(0)), range(steps), strict=False):
        optimizer.zero_grad()
        loss = model.loss(*map(torch.tensor, batch))
        loss.backward()
        if task.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), task.clip)
        optimizer.step()
        losses.append(loss.item())
    return first, losses


def own_losses(task: Task, first: torch.nn.Module, steps: int, device: polyhal.Device, captured: bool) -> list[float]:
    """Train from the weights of `first`, op by op or in captured steps. Returns the loss of each step."""
    model = task.make().to(device)
    load_weights_of(model, first)
    optimizer = task.optimizer(polyhal.optim, model.parameters())

    def step(*batch: polyhal.Tensor) -> polyhal.Tensor:
        optimizer.zero_grad()
        loss: polyhal.Tensor = model.loss(*batch)
        loss.backward()
        if task.clip:
            polyhal.nn.utils.clip_grad_norm_(model.parameters(), task.clip)
        optimizer.step()
        return loss.detach()

    run = polyhal.jit(step) if captured else step
    losses = []
    for batch, _ in zip(task.batches(np.random.default_rng(0)), range(steps), strict=False):
        losses.append(run(*(polyhal.tensor(x, device=device) for x in batch)))
    return [loss.item() for loss in losses]
