"""Optimizers that look at whole parameters, and L-BFGS, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn, optim
from polyhal.optim import adafactor

SHAPES = [(6, 4), (3,), (), (2, 5, 3)]


def pair(device: ph.Device, shapes: list[Any]) -> tuple[list[nn.Parameter], list[torch.nn.Parameter]]:
    values = [np.asarray(np.random.default_rng(i).normal(size=s), np.float32) for i, s in enumerate(shapes)]
    return [nn.Parameter(ph.tensor(v, device=device)) for v in values], [
        torch.nn.Parameter(torch.tensor(v)) for v in values
    ]


def give_gradients(ours: list[nn.Parameter], theirs: list[torch.nn.Parameter], step: int) -> None:
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        g = np.asarray(np.random.default_rng(100 * step + i).normal(size=p.shape), np.float32)
        p.grad, q.grad = ph.tensor(g, device=p.device), torch.tensor(g)


@pytest.mark.parametrize(
    "settings", [{}, {"lr": 0.1, "weight_decay": 0.1, "d": 2.0, "eps": (1e-6, 1e-2)}, {"maximize": True}]
)
@pytest.mark.parametrize("shapes", [SHAPES, [(6, 4), (3,), (1, 7)]], ids=["any", "matrices"])
def test_adafactor(device: ph.Device, shapes: list[Any], settings: dict[str, Any]) -> None:
    ours, theirs = pair(device, shapes)
    a, b = optim.Adafactor(ours, **settings), torch.optim.Adafactor(theirs, **settings)
    for step in range(5):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
        for p, q in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-6)
    c = optim.Adafactor(ours, **settings)
    c.load_state_dict(b.state_dict())
    assert c.state[ours[0]]["row_var"].shape == (6, 1)


@pytest.mark.parametrize("dtype", [ph.float32, ph.bfloat16], ids=str)
def test_captured_adafactor_equals_one_optimizer_for_each_parameter(
    device: ph.Device, dtype: ph.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some tensors count as large, one is empty, and one misses a step."""
    monkeypatch.setattr(adafactor, "_LARGE", 24)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in (*SHAPES, (0, 3), (5, 1), (1, 4))]
    together, alone = ([nn.Parameter(ph.tensor(x, dtype=dtype, device=device)) for x in arrays] for _ in range(2))
    optimizers = [optim.Adafactor(together, lr=0.1), *(optim.Adafactor([p], lr=0.1) for p in alone)]
    steps = [ph.jit(optimizers[0].step), *(optimizer.step for optimizer in optimizers[1:])]
    for number in range(4):
        for i, (p, q) in enumerate(zip(together, alone, strict=True)):
            gradient = rng.normal(size=p.shape)
            for x in (p, q):
                x.grad = None if (i, number) == (1, 1) else ph.tensor(gradient, dtype=dtype, device=device)
        for step in steps:
            step()
    for p, q in zip(together, alone, strict=True):
        # Sums of up to 30 squares in another order, in the rate of a step that is at most as large as the parameter.
        limit = 8 * ph.finfo(dtype).eps * max(1.0, np.abs(q.detach().float().numpy()).max(initial=0))
        np.testing.assert_allclose(p.detach().float().numpy(), q.detach().float().numpy(), rtol=0, atol=limit)


@pytest.mark.parametrize("settings", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "lr": 0.1}])
def test_muon(device: ph.Device, settings: dict[str, Any]) -> None:
    ours, theirs = pair(device, [(6, 4), (4, 9), (6, 4), (4, 9), (4, 6)])
    a, b = optim.Muon(ours, **settings), torch.optim.Muon(theirs, **settings)
    before = [p.numpy() for p in ours]
    for step in range(2):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
    for p, q, start in zip(ours, theirs, before, strict=True):
        moved = np.abs(q.detach().numpy() - start).max()
        # Five iterations in bfloat16, whose products round each sum to 8 bits, and each iteration amplifies up to 3.4 times.
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=0, atol=0.08 * moved)
    with pytest.raises(ValueError, match="two axes"):
        optim.Muon(pair(device, [(3,)])[0])


@pytest.mark.parametrize("dtype", [ph.float32, ph.bfloat16], ids=str)
def test_muon_updates_equal_shapes_together_as_one_by_one(device: ph.Device, dtype: ph.dtype) -> None:
    """Eager and captured; one of the matrices is empty."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((5, 3), (3, 5), (5, 3), (0, 3), (5, 3))]
    together, alone = ([nn.Parameter(ph.tensor(x, dtype=dtype, device=device)) for x in arrays] for _ in range(2))
    optimizers = [optim.Muon(together), *(optim.Muon([p]) for p in alone)]
    steps = [ph.jit(optimizers[0].step), *(optimizer.step for optimizer in optimizers[1:])]
    for _ in range(4):
        for p, q in zip(together, alone, strict=True):
            gradient = rng.normal(size=p.shape)
            p.grad, q.grad = (ph.tensor(gradient, dtype=dtype, device=device) for _ in range(2))
        for step in steps:
            step()
    for p, q, x in zip(together, alone, arrays, strict=True):
        moved = np.abs(q.detach().float().numpy() - x).max(initial=0)
        # Products of several matrices may sum in another order, which five iterations in bfloat16 amplify.
        np.testing.assert_allclose(p.detach().float().numpy(), q.detach().float().numpy(), rtol=0, atol=0.08 * moved)


def test_lamb_scales_updates_to_the_parameter(device: ph.Device) -> None:
    """Against the paper's formula in float64."""
    (p, *_), _ = pair(device, SHAPES)
    optimizer = optim.LAMB([p], lr=0.1, weight_decay=0.05)
    x = p.numpy().astype(np.float64)
    m = v = np.zeros_like(x)
    for step in range(1, 5):
        g = np.random.default_rng(step).normal(size=x.shape)
        p.grad = ph.tensor(g.astype(np.float32), device=device)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        update = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + 0.05 * x
        x = x - 0.1 * np.linalg.norm(x) / np.linalg.norm(update) * update
        np.testing.assert_allclose(p.numpy(), x, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [ph.float32, ph.float64, ph.bfloat16], ids=str)
def test_lamb_scales_each_of_several_parameters_equally(numpy_device: ph.Device, dtype: ph.dtype) -> None:
    """One optimizer of all parameters, where one misses a step, equals an optimizer for each parameter."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((4, 3), (5,), (), (7,))]
    together, alone = ([nn.Parameter(ph.tensor(x, dtype=dtype, device=numpy_device)) for x in arrays] for _ in range(2))
    optimizers = [optim.LAMB(together, lr=0.1), *(optim.LAMB([p], lr=0.1) for p in alone)]
    for step in range(3):
        for i, pair_ in enumerate(zip(together, alone, strict=True)):
            gradient = rng.normal(size=arrays[i].shape)
            for p in pair_:
                p.grad = None if (i, step) == (1, 1) else ph.tensor(gradient, dtype=dtype, device=numpy_device)
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(together, alone, strict=True):
        np.testing.assert_array_equal(p.detach().double().numpy(), q.detach().double().numpy())


def rosenbrock(x: Any) -> Any:
    return ((x[1:] - x[:-1] ** 2) ** 2 * 100 + (1 - x[:-1]) ** 2).sum()


def minimized(make: Callable[[Any], Any], x: Any, steps: int) -> float:
    optimizer = make([x])

    def closure() -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return float(rosenbrock(x.detach()))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_finds_the_minimum(search: str | None) -> None:
    start = np.full(5, 0.5)
    lr = 1.0 if search else 0.2
    ours = minimized(
        lambda p: optim.LBFGS(p, lr=lr, line_search_fn=search), ph.tensor(start, device="numpy", requires_grad=True), 10
    )
    theirs = minimized(
        lambda p: torch.optim.LBFGS(p, lr=lr, line_search_fn=search), torch.tensor(start, requires_grad=True), 10
    )
    # The minimum is 0; both stop where a step or the loss changes by less than 1e-9.
    assert ours < 1e-8
    assert theirs < 1e-8


def test_lbfgs_trains_a_model(device: ph.Device) -> None:
    ph.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    x = ph.tensor(np.random.default_rng(0).normal(size=(32, 2)).astype(np.float32), device=device)
    y = (x[:, :1] * x[:, 1:]).detach()
    optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    first = float(optimizer.step(closure))
    for _ in range(3):
        last = float(optimizer.step(closure))
    assert last < first / 10


def test_lbfgs_needs_a_closure() -> None:
    x = ph.zeros((2,), device="numpy", requires_grad=True)
    with pytest.raises(ValueError, match="closure"):
        optim.LBFGS([x]).step()
