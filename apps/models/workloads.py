"""Workloads of `polyhal prebuild`: small models whose training and inference build the kernels of common programs.

Shapes are arguments of kernels, not compiled into them, so small tensors build the same programs as large ones if both
take the same code path. Each workload therefore has the sizes of its example.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import polyhal
from polyhal import Device
from polyhal.models.cnn import CNN
from polyhal.models.gpt import GPT
from polyhal.models.gpt_config import GPTConfig
from polyhal.models.mlp import MLP
from polyhal.nn import functional as F

_CLASSES = 10
_BATCH = 64
_CAPTURED_CALLS = 3
"""Calls of a captured function: the first runs op by op, the second is recorded, the third replayed."""


def mlp(device: Device) -> None:
    """Train the multi-layer perceptron of the examples."""
    images, labels = _images(device)
    _classifier(MLP((_BATCH, 128, _CLASSES), device=device), images.reshape((_BATCH, -1)), labels)


def cnn(device: Device) -> None:
    """Train the convolutional network of the examples."""
    images, labels = _images(device)
    _classifier(CNN(device=device), images, labels)


def gpt(device: Device) -> None:
    """Train the default language model of `polyhal train`, and generate text with it."""
    model, tokens = _language_model(device)
    optimizer = polyhal.optim.AdamW(model.parameters(), lr=1e-3)
    loss = model.loss(tokens, tokens)
    optimizer.zero_grad()
    loss.backward()
    polyhal.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.eval()
    with polyhal.no_grad():
        model.loss(tokens, tokens).numpy()
    model.generate([1, 2, 3], 2)


def captured(device: Device) -> None:
    """Train the language model and the convolutional network in captured steps, whose kernels are fused."""
    model, tokens = _language_model(device)
    step = _captured_step(model.loss, polyhal.optim.AdamW(model.parameters(), lr=1e-3), clip=1.0)
    network = CNN(device=device)
    images, labels = _images(device)
    second = _captured_step(
        lambda x, y: F.cross_entropy(network(x), y), polyhal.optim.SGD(network.parameters(), lr=1e-2, momentum=0.9)
    )
    for _ in range(_CAPTURED_CALLS):
        step(tokens, tokens)
        second(images, labels)


def amp(device: Device) -> None:
    """Train the language model in mixed precision."""
    for dtype in ("float16", "bfloat16"):
        model, tokens = _language_model(device)
        optimizer = polyhal.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = polyhal.amp.GradScaler(enabled=dtype == "float16")
        with polyhal.amp.autocast(dtype=dtype):
            loss = model.loss(tokens, tokens)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


WORKLOADS: dict[str, Callable[[Device], None]] = {f.__name__: f for f in (mlp, cnn, gpt, captured, amp)}
"""Offered by the entry-point group `polyhal.workloads`."""


def _language_model(device: Device) -> tuple[GPT, polyhal.Tensor]:
    config = GPTConfig(vocab_size=96, block_size=128, n_layer=1, n_head=4, n_embd=128, dropout=0.1)
    ids = np.arange(8 * config.block_size).reshape(8, -1) % config.vocab_size
    return GPT(config, device=device), polyhal.tensor(ids.astype(np.int32), device=device)


def _captured_step(
    loss_of: Callable[..., polyhal.Tensor], optimizer: polyhal.optim.Optimizer, clip: float = 0.0
) -> Callable[..., polyhal.Tensor]:
    """Return a captured step; with `clip`, gradients are scaled to that norm at most."""

    @polyhal.jit
    def step(*batch: polyhal.Tensor) -> polyhal.Tensor:
        loss = loss_of(*batch)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            polyhal.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], clip)
        optimizer.step()
        return loss

    return step


def _images(device: Device) -> tuple[polyhal.Tensor, polyhal.Tensor]:
    images = np.zeros((_BATCH, 1, 8, 8), np.float32)
    labels = np.arange(_BATCH, dtype=np.int32) % _CLASSES
    return polyhal.tensor(images, device=device), polyhal.tensor(labels, device=device)


def _classifier(model: polyhal.nn.Module, images: polyhal.Tensor, labels: polyhal.Tensor) -> None:
    """Take a training step with each common optimizer, then evaluate."""
    for optimizer in (
        polyhal.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2),
        polyhal.optim.Adam(model.parameters(), lr=1e-3),
        polyhal.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9),
    ):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        float(loss)
    model.eval()
    with polyhal.no_grad():
        model(images).numpy()
