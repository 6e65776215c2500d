"""The models whose captured steps are compared on runtimes that compile or export whole steps, at sizes of a second or less.

Five train with AdamW or run their loss; a Llama decodes one token with a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import polyhal
from polyhal import Device, jit, nn, optim, tensor
from polyhal.models import CNN, GPT, MLP, Decoder, DecoderConfig, GPTConfig, UNet, resnet18
from polyhal.nn import functional as F

RATE, BETAS, EPS, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
"""Settings of AdamW."""
LEVELS = 50
"""Noise levels of the diffusion model."""
Step = Callable[..., polyhal.Tensor]


class StepModel(NamedTuple):
    """A model and the arguments of its step."""

    what: str
    module: nn.Module
    inputs: Callable[[int], tuple[np.ndarray, ...]]
    """From the number of a run to its arguments."""
    loss: Callable[..., polyhal.Tensor] | None
    """Takes the module and the arguments as tensors; None for a step that decodes the token and position that it is given."""


def _classifier_loss(module: nn.Module, x: polyhal.Tensor, y: polyhal.Tensor) -> polyhal.Tensor:
    logits = module(x)
    return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), y.reshape((-1,)))


def _mlp() -> StepModel:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((64, 64)).astype(np.float32), rng.integers(0, 10, 64)
    return StepModel("MLP 64-256-256-10, 64 rows", MLP((64, 256, 256, 10)), lambda run: (x, y), _classifier_loss)


def _cnn() -> StepModel:
    rng = np.random.default_rng(0)
    module = nn.Sequential(CNN().features, nn.Flatten(), nn.Linear(32 * 4 * 4, 10))
    x, y = rng.standard_normal((32, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 32)
    return StepModel("CNN with batch norm, 32 images of 8x8", module, lambda run: (x, y), _classifier_loss)


def _resnet() -> StepModel:
    rng = np.random.default_rng(0)
    module = resnet18(10, small_images=True)
    x, y = rng.standard_normal((2, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, 2)
    return StepModel("ResNet-18, 2 images of 32x32", module, lambda run: (x, y), _classifier_loss)


def _gpt() -> StepModel:
    rng = np.random.default_rng(0)
    module = GPT(GPTConfig(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128))
    x, y = (rng.integers(0, 65, (8, 64)) for _ in range(2))
    return StepModel("GPT, 0.8 million parameters, 8 x 64 tokens", module, lambda run: (x, y), _classifier_loss)


def llama_config() -> DecoderConfig:
    """Return a small Llama whose heads share keys."""
    return DecoderConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=64,
    )


def _llama() -> StepModel:
    def inputs(run: int) -> tuple[np.ndarray, ...]:
        return np.array([[7 * run % 512]], np.int32), np.array([run % 64], np.int32)

    return StepModel("Llama, 0.9 million parameters, one token of 64", Decoder(llama_config()), inputs, None)


def _unet() -> StepModel:
    rng = np.random.default_rng(0)
    module = UNet(1, None, (16, 32), (False, True), 1, 8)
    noise, images = (rng.standard_normal((8, 1, 8, 8)).astype(np.float32) for _ in range(2))

    def loss(module: nn.Module, x: polyhal.Tensor, t: polyhal.Tensor, noise: polyhal.Tensor) -> polyhal.Tensor:
        return F.mse_loss(module(x, t), noise)

    inputs = (images, rng.integers(0, LEVELS, 8).astype(np.int32), noise)
    return StepModel("UNet with attention, 8 images of 8x8", module, lambda run: inputs, loss)


MODELS: dict[str, Callable[[], StepModel]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "gpt": _gpt,
    "resnet": _resnet,
    "llama": _llama,
    "unet": _unet,
}


class ModelStep(NamedTuple):
    """A captured step of a model."""

    captured: Step
    """Takes the arguments as tensors; returns the loss, or the logits (vocabulary,) of the next token."""
    rewind: Callable[[], None]
    """Called before each run in Python: a cache counts positions, although the arguments select one."""


def captured_step(model: StepModel, device: Device) -> ModelStep:
    """Move a model to a device and return its step."""
    module = model.module.to(device)
    if model.loss is None:
        cache = module.eval().make_cache(1)

        def step(token: polyhal.Tensor, position: polyhal.Tensor) -> polyhal.Tensor:
            with polyhal.no_grad():
                cache.lengths.copy_(position)
                logits: polyhal.Tensor = module(token, cache)[0, -1]
            return logits

        return ModelStep(jit(step), lambda: setattr(cache, "length", 0))
    optimizer = optim.AdamW(module.parameters(), lr=RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)
    loss_of = model.loss

    def step(*x: polyhal.Tensor) -> polyhal.Tensor:
        optimizer.zero_grad()
        loss = loss_of(module, *x)
        loss.backward()
        optimizer.step()
        return loss

    return ModelStep(jit(step), lambda: None)


def arguments(model: StepModel, device: Device, run: int = 0) -> tuple[polyhal.Tensor, ...]:
    """Return the arguments of a run of a model's step on a device."""
    return tuple(tensor(x, device=device) for x in model.inputs(run))
