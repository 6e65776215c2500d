"""One model computes equal numbers on every device, and the numbers that PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import TEST_DEVICES

import polyhal
from polyhal import Device, Tensor, nn
from polyhal.models import CNN, GPT, MLP, GPTConfig
from polyhal.nn import functional as F
from polyhal.nn.utils import clip_grad_norm_
from polyhal.optim import AdamW
from polyhal.training.options import TrainOptions

torch = pytest.importorskip("torch", reason="PyTorch is a development dependency")


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


GRADIENT_BOUND = 1e-4
"""Largest difference of a parameter's gradients, relative to its norm. Sums of a few thousand float32 products in another
order differ by about sqrt(n) * 6e-8, some 4e-6; deep models amplify that."""

CURVE_BOUND = 2e-3
"""Nats. Training amplifies rounding: a relative difference of 6e-8 in the first gradients grows with every step."""
_CURVE_BATCH = 4
_CURVE_STEPS = 30


def _torch_mlp() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    )


def _torch_cnn() -> Any:
    t = torch.nn
    features = t.Sequential(
        t.Conv2d(1, 16, 3, padding=1, bias=False),
        t.BatchNorm2d(16),
        t.ReLU(),
        t.Conv2d(16, 32, 3, padding=1, bias=False),
        t.BatchNorm2d(32),
        t.ReLU(),
        t.MaxPool2d(2),
    )
    return t.Sequential(features, t.Sequential(t.Flatten(), t.Identity(), t.Linear(512, 10)))


def _classifier(device: Device, make: Callable[[], Any], theirs: Any, shape: tuple[int, ...]) -> None:
    """Give ours their weights in order, and compare the gradients of a batch's loss."""
    ours = make()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert p.shape == tuple(q.shape)
        p.detach().copy_(q.detach().numpy())
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape).astype(np.float32), rng.integers(0, 10, shape[0])
    loss = F.cross_entropy(ours(polyhal.tensor(x, device=device)), polyhal.tensor(y, device=device))
    loss.backward()
    expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        _compare(name, p, q.grad.numpy())


def _compare(name: str, p: Tensor, want: np.ndarray) -> None:
    assert p.grad is not None, name
    assert p.grad.shape == want.shape, name
    error = np.linalg.norm(p.grad.numpy() - want) / max(np.linalg.norm(want), 1e-12)
    assert error <= GRADIENT_BOUND, f"{name}: {error:.1e}"


def test_mlp_gradients_are_those_of_pytorch(device: Device) -> None:
    _classifier(device, lambda: MLP((64, 128, 32, 10), device=device), _torch_mlp(), (32, 64))


def test_cnn_gradients_are_those_of_pytorch(device: Device) -> None:
    def make() -> nn.Module:
        model = CNN(device=device)
        model.classifier[1] = nn.Identity()  # dropout draws other numbers in PyTorch
        return model

    _classifier(device, make, _torch_cnn(), (16, 1, 8, 8))


def test_gpt_gradients_are_those_of_pytorch(device: Device) -> None:
    from benchmarks.torch_models import TorchGPT

    config = GPTConfig(vocab_size=65, block_size=48, n_layer=2, n_head=4, n_embd=64)
    ours, theirs = GPT(config, device=device), TorchGPT(config)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()})
    tokens = np.random.default_rng(0).integers(0, 65, (4, 49))
    x, y = tokens[:, :-1].copy(), tokens[:, 1:].copy()
    loss = ours.loss(polyhal.tensor(x, device=device), polyhal.tensor(y, device=device))
    loss.backward()
    expected = theirs.loss(torch.tensor(x), torch.tensor(y))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    grads = {name: q.grad.numpy() for name, q in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        _compare(name, p, grads[name])


def _curve(device: Device, steps: int) -> list[float]:
    """Losses of the default GPT in its first steps, on a fixed sequence of batches, which are small to save time."""
    o = TrainOptions()
    polyhal.manual_seed(0)
    config = GPTConfig(vocab_size=65, block_size=o.context, n_layer=o.layers, n_head=o.heads, n_embd=o.width)
    model = GPT(config, device=Device("numpy"))  # drawn once, so that only the steps differ
    model.to(device)
    optimizer = AdamW(model.parameters(), lr=1e-3, weight_decay=o.weight_decay)
    rng = np.random.default_rng(1)
    losses: list[Tensor] = []
    for _ in range(steps):
        # Tokens that depend on each other, so that there is something to learn.
        walk = np.cumsum(rng.integers(0, 4, (_CURVE_BATCH, o.context + 1)), axis=1) % 65
        x, y = (polyhal.tensor(a.copy(), device=device) for a in (walk[:, :-1], walk[:, 1:]))
        optimizer.zero_grad()
        loss = model.loss(x, y)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [v.item() for v in losses]


@pytest.fixture(scope="module")
def reference_curve() -> list[float]:
    return _curve(Device("numpy"), _CURVE_STEPS)


@pytest.mark.parametrize("name", [d for d in TEST_DEVICES if not d.startswith("numpy")])
def test_loss_curve_is_that_of_numpy(name: str, reference_curve: list[float]) -> None:
    curve = _curve(Device(name), _CURVE_STEPS)
    assert reference_curve[-1] < reference_curve[0] - 0.5, "nothing was learnt, so agreement would mean little"
    assert np.abs(np.array(curve) - np.array(reference_curve)).max() <= CURVE_BOUND
