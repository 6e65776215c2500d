"""Whole networks against PyTorch: the same weights, the same gradients."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device

torch = pytest.importorskip("torch")


def _data(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * 0.5).astype(np.float32)


def test_mlp(device: Device) -> None:
    x, target = _data(16, 20), np.random.default_rng(1).integers(0, 5, 16)
    weights = [_data(32, 20, seed=2), _data(32, seed=3), _data(5, 32, seed=4), _data(5, seed=5)]
    ours = [Tensor(w, device=device, requires_grad=True) for w in weights]
    theirs = [torch.tensor(w, requires_grad=True) for w in weights]
    hidden = polyhal.linear(Tensor(x, device=device), ours[0], ours[1]).gelu()
    logits = polyhal.linear(hidden, ours[2], ours[3])
    rows = polyhal.arange(0, 16, device=device)
    loss = -logits.log_softmax(axis=-1)[rows, Tensor(target, device=device)].mean()
    expected = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(
            torch.nn.functional.gelu(torch.nn.functional.linear(torch.tensor(x), *theirs[:2])), *theirs[2:]
        ),
        torch.tensor(target),
    )
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    loss.backward()
    expected.backward()
    for a, b in zip(ours, theirs, strict=True):
        assert a.grad is not None
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_attention_block(device: Device) -> None:
    x, w = _data(2, 7, 12), [_data(12, 12, seed=s) for s in (1, 2, 3)]

    def run(x: object, w: list[object], swap: object, softmax: object) -> object:
        q, k, v = (x @ m for m in w)  # type: ignore[operator]
        return softmax(q @ swap(k) / 12**0.5) @ v  # type: ignore[operator]

    ours, theirs = (
        [Tensor(m, device=device, requires_grad=True) for m in w],
        [torch.tensor(m, requires_grad=True) for m in w],
    )
    a = run(Tensor(x, device=device), ours, lambda t: t.mT, lambda t: t.softmax(axis=-1))  # type: ignore[arg-type]
    b = run(torch.tensor(x), theirs, lambda t: t.mT, lambda t: t.softmax(-1))
    (a * a).sum().backward()  # type: ignore[operator]
    (b * b).sum().backward()  # type: ignore[operator]
    for p, q in zip(ours, theirs, strict=True):
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_second_order(numpy_device: Device) -> None:
    x, w = _data(4, 3), _data(3, 2, seed=1)
    ours, theirs = Tensor(w, device=numpy_device, requires_grad=True), torch.tensor(w, requires_grad=True)
    (g,) = polyhal.grad((Tensor(x, device=numpy_device) @ ours).sigmoid().sum(), [ours], create_graph=True)
    assert g is not None
    (g * g).sum().backward()
    (h,) = torch.autograd.grad((torch.tensor(x) @ theirs).sigmoid().sum(), [theirs], create_graph=True)
    (h * h).sum().backward()
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-7)
