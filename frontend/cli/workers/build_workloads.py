"""Workloads of `polyhal prebuild`: small models whose training and inference build the kernels of common programs.

Shapes are arguments of kernels, not compiled into them, so small tensors build the same programs as large ones if both
take the same code path. Each workload therefore has the sizes of its example.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

import polyhal
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError
from polyhal.hal.kernels.call_log import KernelCallLog
from polyhal.models import CNN, GPT, MLP, GPTConfig
from polyhal.nn import functional as F

_CLASSES = 10
_BATCH = 64
_CAPTURED_CALLS = 3
"""Calls of a captured function: the first runs op by op, the second is recorded, the third replayed."""


def basics(device: Device) -> None:
    """Create, copy and read tensors."""
    for dtype in ("float32", "int32", "bool"):
        x = polyhal.zeros((8, 8), dtype=dtype, device=device)
        _ = x.T.contiguous().numpy(), x[:, 1:].numpy()
    x = polyhal.randn((64, 64), device=device)
    _ = ((x + x) * 2.0 - x / 3.0).sum().numpy(), x.mean(axis=0).numpy(), x.max(axis=1).numpy(), x.argmax(axis=1).numpy()


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


def used(device: Device) -> None:
    """Run every call in the kernel-call log of this device, under any driver. Calls that fail now are skipped."""
    for call in KernelCallLog(device.info).calls():
        try:
            call.run(device)
        except (PolyhalError, KeyError, TypeError, ValueError) as error:  # logged by another version of Polyhal
            warnings.warn(f"{call.op} is skipped: {error}", stacklevel=1)


WORKLOADS: dict[str, Callable[[Device], None]] = {f.__name__: f for f in (basics, mlp, cnn, gpt, captured, amp, used)}


def chosen(names: str) -> list[str]:
    """Return the workloads of a comma-separated list. Raises ValueError for an unknown one, and for none."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in WORKLOADS]
    if unknown or not wanted:
        problem = f"unknown workload {', '.join(map(repr, unknown))}" if unknown else "no workload is given"
        raise ValueError(f"{problem}; expected any of {', '.join(WORKLOADS)}")
    return wanted


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
