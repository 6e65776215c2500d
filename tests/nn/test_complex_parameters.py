"""Complex parameters and buffers, compared with PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.nn.utils import clip_grad_norm_, clip_grad_value_

_START = [1 + 2j, 3 - 1j, -0.5j]


class Scale(nn.Module):
    """A module that multiplies by a complex parameter."""

    def __init__(self, device: ph.Device) -> None:
        super().__init__()
        self.weight = nn.Parameter(ph.tensor(_START, device=device))
        self.phase = nn.Buffer(ph.tensor([1j, 1, -1], device=device))

    def forward(self, x: ph.Tensor) -> ph.Tensor:
        return ((self.weight * x * self.phase - 1j).abs() ** 2).sum()


def test_lists_arrays_and_tensors_become_complex_parameters(device: ph.Device) -> None:
    for data in (_START, np.array(_START, np.complex64), ph.tensor(_START, device=device)):
        p = nn.Parameter(data, device=device)
        assert isinstance(p, nn.Parameter)
        assert p.dtype is ph.complex64
        assert p.requires_grad
        assert p.is_leaf
    assert nn.Parameter([1.0], dtype="complex64", device=device).dtype is ph.complex64
    x = ph.tensor(_START, device=device)
    assert nn.Parameter(x).real.buffer is x.real.buffer
    assert not x.requires_grad


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("captured", [False, True])
def test_training_and_its_state_are_pytorchs(device: ph.Device, kind: str, captured: bool) -> None:
    torch = pytest.importorskip("torch")
    settings: dict[str, Any] = {"lr": 0.1, **({"momentum": 0.9} if kind == "SGD" else {})}
    model, theirs = Scale(device), torch.nn.Parameter(torch.tensor(_START, dtype=torch.complex128))
    optimizer = getattr(optim, kind)(model.parameters(), **settings)
    their_optimizer = getattr(torch.optim, kind)([theirs], **settings)
    phase = torch.tensor([1j, 1, -1], dtype=torch.complex128)

    def step(x: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss: ph.Tensor = model(x)
        loss.backward()
        optimizer.step()
        return loss

    run = ph.jit(step) if captured else step
    for _ in range(4):
        run(ph.ones(3, device=device))
        their_optimizer.zero_grad()
        ((theirs * phase - 1j).abs() ** 2).sum().backward()
        their_optimizer.step()
    np.testing.assert_allclose(model.weight.numpy(), theirs.detach().numpy(), rtol=2e-5)
    mine, expected = optimizer.state_dict()["state"][0], their_optimizer.state_dict()["state"][0]
    for name, value in expected.items():
        if name in mine and torch.is_tensor(value) and value.ndim:
            np.testing.assert_allclose(mine[name].numpy(), value.numpy(), rtol=2e-4, atol=1e-6)
    optimizer.load_state_dict(their_optimizer.state_dict())
    again = optimizer.state_dict()["state"][0]
    for name, value in mine.items():
        if isinstance(value, ph.Tensor):
            np.testing.assert_allclose(again[name].numpy(), value.numpy(), rtol=2e-4, atol=1e-6)


def test_states_are_saved_loaded_and_moved(device: ph.Device, tmp_path: Path) -> None:
    model = Scale(device)
    ph.save(model.state_dict(), tmp_path / "x.safetensors")
    for lazy in (False, True):
        other = Scale(ph.Device("numpy"))
        other.weight.data.zero_()
        other.load_state_dict(ph.load(tmp_path / "x.safetensors", "numpy", lazy=lazy))
        assert other.weight.tolist() == model.weight.tolist()
    weight = other.weight
    other.to(device)
    assert other.weight is weight
    assert {weight.device, weight.real.device, other.phase.device} == {device}
    other.load_state_dict({"weight": np.ones(3) * 2j, "phase": np.ones(3)})
    assert weight.tolist() == [2j] * 3


def test_gradients_are_clipped(device: ph.Device) -> None:
    torch = pytest.importorskip("torch")
    for norm_type in (2.0, 1.0, float("inf")):
        p, q = nn.Parameter(ph.tensor(_START, device=device)), torch.nn.Parameter(torch.tensor(_START))
        (p.abs() ** 2).sum().backward()
        (q.abs() ** 2).sum().backward()
        norm = clip_grad_norm_([p], 1.0, norm_type)
        assert norm.item() == pytest.approx(torch.nn.utils.clip_grad_norm_([q], 1.0, norm_type).item(), rel=1e-5)
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5)
    clip_grad_value_([p], 0.25)
    assert np.abs(p.grad.real.numpy()).max() <= 0.25
