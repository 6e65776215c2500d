"""Loss scaling: steps that are left out, the scale that follows, and PyTorch's semantics of the calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import Device, Tensor
from polyhal.amp import GradScaler, GradScalerError
from polyhal.optim import SGD, Adam


@pytest.fixture
def device() -> Device:
    return Device.default()


def _step(scaler: GradScaler, optimizer: SGD, w: Tensor, factor: float) -> None:
    optimizer.zero_grad()
    scaler.scale((w * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_gradients_are_unscaled_and_bad_steps_left_out(device: Device) -> None:
    w = polyhal.tensor(np.ones(1000, np.float32), device=device).requires_grad_()
    optimizer, scaler = SGD([w], lr=0.5), GradScaler(init_scale=1024.0, growth_interval=2)
    _step(scaler, optimizer, w, 2.0)
    np.testing.assert_allclose(w.numpy(), 0.0, atol=1e-6)
    for bad in (math.inf, math.nan):
        before, scale = w.numpy(), scaler.get_scale()
        _step(scaler, optimizer, w, bad)
        np.testing.assert_array_equal(w.numpy(), before)
        assert scaler.get_scale() == scale / 2
    assert scaler.get_scale() == 256.0


def test_the_scale_grows_after_good_steps_only(device: Device) -> None:
    w = polyhal.tensor(np.ones(3, np.float32), device=device).requires_grad_()
    optimizer, scaler = SGD([w], lr=0.1), GradScaler(init_scale=8.0, growth_interval=3)
    scales = []
    for factor in (1.0, 1.0, math.inf, 1.0, 1.0, 1.0, 1.0):
        _step(scaler, optimizer, w, factor)
        scales.append(scaler.get_scale())
    assert scales == [8.0, 8.0, 4.0, 4.0, 4.0, 8.0, 8.0]


@pytest.mark.parametrize("place", [0, 700, -1])
def test_one_bad_element_anywhere_is_found(device: Device, place: int) -> None:
    w = polyhal.tensor(np.ones((30, 41), np.float32), device=device).requires_grad_()
    v = polyhal.tensor(np.ones(5, np.float32), device=device).requires_grad_()
    scaler = GradScaler()
    scaler.scale(v.sum() + w.sum()).backward()
    spoiled = np.ones(30 * 41, np.float32)
    spoiled[place] = -math.inf
    w.grad = polyhal.tensor(spoiled.reshape(30, 41), device=device)
    optimizer = SGD([v, w], lr=1.0)
    scaler.step(optimizer)
    np.testing.assert_array_equal(v.numpy(), 1.0)
    scaler.update()
    assert scaler.get_scale() == 32768.0


def test_against_pytorch(device: Device) -> None:
    torch: Any = pytest.importorskip("torch")
    settings = {"init_scale": 16.0, "growth_interval": 2, "growth_factor": 4.0, "backoff_factor": 0.25}
    ours, theirs = GradScaler(**settings), torch.amp.GradScaler("cpu", **settings)  # type: ignore[arg-type]
    w = polyhal.tensor(np.ones(4, np.float32), device=device).requires_grad_()
    t = torch.ones(4, requires_grad=True)
    optimizer, reference = SGD([w], lr=0.1, momentum=0.9), torch.optim.SGD([t], lr=0.1, momentum=0.9)
    for factor in (1.0, 3.0, math.nan, 0.5, 0.25, 2.0):
        _step(ours, optimizer, w, factor)
        reference.zero_grad()
        theirs.scale((t * factor).sum()).backward()
        theirs.step(reference)
        theirs.update()
        np.testing.assert_allclose(w.numpy(), t.detach().numpy(), rtol=1e-6)
        assert ours.get_scale() == theirs.get_scale()
    assert ours.state_dict() == theirs.state_dict()
    restored = GradScaler()
    restored.load_state_dict(theirs.state_dict())
    assert restored.state_dict() == theirs.state_dict()


def test_order_of_calls(device: Device) -> None:
    w = polyhal.tensor(np.ones(2, np.float32), device=device).requires_grad_()
    optimizer, scaler = SGD([w], lr=0.1), GradScaler()
    with pytest.raises(GradScalerError, match="nothing was scaled"):
        scaler.unscale_(optimizer)
    scaler.scale(w.sum()).backward()
    with pytest.raises(GradScalerError, match="no gradients were unscaled"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(GradScalerError, match="unscaled already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(GradScalerError, match="called twice"):
        scaler.step(optimizer)
    with pytest.raises(GradScalerError, match="closure"):
        scaler.step(optimizer, lambda: None)
    scaler.update(4.0)
    assert scaler.get_scale() == 4.0
    with pytest.raises(GradScalerError, match="empty"):
        scaler.load_state_dict({})
    with pytest.raises(ValueError, match="growth above 1"):
        GradScaler(growth_factor=0.5)


def test_a_scaler_that_is_not_enabled_does_nothing(device: Device) -> None:
    w = polyhal.tensor(np.ones(2, np.float32), device=device).requires_grad_()
    optimizer, scaler = SGD([w], lr=1.0), GradScaler(enabled=False)
    _step(scaler, optimizer, w, 1.0)
    np.testing.assert_array_equal(w.numpy(), 0.0)
    assert scaler.state_dict() == {}
    assert scaler.get_scale() == 1.0


def test_a_device_may_come_first_as_in_pytorch() -> None:
    for scaler in (GradScaler("cpu", 8.0), GradScaler(8.0), GradScaler(device="cuda", init_scale=8.0)):
        assert scaler.get_scale() == 8
    assert not GradScaler("cpu", enabled=False).is_enabled()
    with pytest.raises(TypeError, match="at most 6"):
        GradScaler("cpu", 8.0, 2.0, 0.5, 10, True, 1)


def test_named_results_are_scaled_field_by_field() -> None:
    scaled = GradScaler(init_scale=4.0).scale(polyhal.tensor([1.0, 3.0], device="numpy").topk(1))
    assert scaled.values.tolist() == [12]


def test_a_first_gradient_after_skipped_steps_starts_the_count_of_its_parameter(device: Device) -> None:
    early, late = (polyhal.ones((2,), device=device, requires_grad=True) for _ in range(2))
    torch: Any = pytest.importorskip("torch")
    optimizer = Adam([early, late], lr=0.1)
    theirs = [torch.ones(2, requires_grad=True) for _ in range(2)]
    expected = torch.optim.Adam(theirs, lr=0.1)
    for step, skip in enumerate((1.0, 1.0, 0.0, 1.0, 0.0)):
        trained = 1 if step < 2 else 2
        for p, q in list(zip((early, late), theirs, strict=True))[:trained]:
            p.grad = polyhal.full((2,), 0.5 + step, device=device)
            q.grad = torch.full((2,), 0.5 + step)
        optimizer.step(skip=polyhal.tensor(skip, device=device))
        if not skip:
            expected.step()
    for p, q in zip((early, late), theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-5)
