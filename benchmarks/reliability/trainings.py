"""Trainings of a few steps, small enough to be repeated once per fault: digits MLP, CNN and GPT, eager and captured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import polyhal as ph
from polyhal import nn, optim
from polyhal.models import gpt
from polyhal.nn import functional as F

STEPS = 5
"""One that runs eagerly, two that are recorded, and replays."""
_CLASSES, _SIDE, _BATCH, _WORDS, _CONTEXT = 10, 8, 3, 11, 6


class Recipe(NamedTuple):
    """The models to train."""

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, ph.Tensor, ph.Tensor], ph.Tensor]
    batch: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    repeatable: bool
    """True if a step that failed can simply be repeated, because the forward pass changes nothing."""


def _digits(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return random.random((_BATCH, *shape), np.float32), random.integers(0, _CLASSES, _BATCH)


def _classified(model: nn.Module, x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
    return F.cross_entropy(model(x), y)


def _predicted(model: nn.Module, x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
    return F.cross_entropy(model(x).reshape(-1, _WORDS), y.reshape(-1))


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(_SIDE * _SIDE, 16), nn.ReLU(), nn.Linear(16, _CLASSES))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, _CLASSES),
    )


def _gpt() -> nn.Module:
    return gpt.GPT(gpt.GPTConfig(vocab_size=_WORDS, block_size=_CONTEXT, n_layer=1, n_head=2, n_embd=8, dropout=0.1))


def _text(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    tokens = random.integers(0, _WORDS, (_BATCH, _CONTEXT + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


RECIPES = {
    "mlp": Recipe(_mlp, _classified, partial(_digits, shape=(_SIDE * _SIDE,)), repeatable=True),
    "cnn": Recipe(_cnn, _classified, partial(_digits, shape=(1, _SIDE, _SIDE)), repeatable=False),
    "gpt": Recipe(_gpt, _predicted, _text, repeatable=False),
}


class Training:
    """A training on one device, always on the same batches."""

    def __init__(self, recipe: Recipe, device: ph.Device, *, captured: bool) -> None:
        """Build the model. Raises the errors of the device."""
        self.recipe = recipe
        self.device = device
        self.done = 0
        """Steps whose update is enqueued."""
        ph.manual_seed(0)
        self._model = recipe.build().to(device)
        self._optimizer = optim.AdamW(self._model.parameters(), lr=0.01)
        self._schedule = optim.lr_scheduler.StepLR(self._optimizer, 2)
        self._first_schedule = self._schedule.state_dict()
        self._step: Callable[[ph.Tensor, ph.Tensor], ph.Tensor] = ph.jit(self._update) if captured else self._update

    def _update(self, x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        self._optimizer.zero_grad()
        loss = self.recipe.loss(self._model, x, y)
        loss.backward()
        self._optimizer.step()
        return loss

    def step(self) -> float:
        """Train on the next batch. Returns the loss, so that the step has ended and its errors are known."""
        x, y = self.recipe.batch(np.random.default_rng(self.done))
        loss = self._step(ph.tensor(x, device=self.device), ph.tensor(y, device=self.device))
        self._schedule.step()
        self.done += 1
        return float(loss.detach().numpy_async().result())

    def begin_again(self) -> None:
        """Go back to the first batch and the first learning rate. Weights and moments are kept."""
        self._schedule.load_state_dict(dict(self._first_schedule))
        for group, lr in zip(self._optimizer.param_groups, self._schedule.get_last_lr(), strict=True):
            group["lr"] = lr
        self.done = 0

    def checkpoint(self) -> dict[str, Any]:
        """Return everything that the training needs to continue, in the host's memory."""
        return {
            "model": {name: x.numpy() for name, x in self._model.state_dict().items()},
            "optimizer": _on_host(self._optimizer.state_dict()),
            "schedule": self._schedule.state_dict(),
            "random": ph.get_rng_state(),
            "done": self.done,
        }

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._model.load_state_dict(checkpoint["model"])
        self._optimizer.load_state_dict(checkpoint["optimizer"])
        self._schedule.load_state_dict(dict(checkpoint["schedule"]))
        ph.set_rng_state(checkpoint["random"])
        self.done = checkpoint["done"]


def _on_host(value: Any) -> Any:
    """Return the structure with arrays in place of tensors."""
    if isinstance(value, dict):
        return {k: _on_host(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_on_host, value))
    return value.numpy() if isinstance(value, ph.Tensor) else value


def weights_of(checkpoint: dict[str, Any]) -> bytes:
    """Return the bits of a checkpoint's model."""
    return b"".join(np.ascontiguousarray(x).tobytes() for x in checkpoint["model"].values())
