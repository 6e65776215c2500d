"""Rematerialization lowers memory and keeps results bitwise identical."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim

from .models import training


def _trained(kind: str, name: str, budget: int | None) -> tuple[list[bytes], Any]:
    """Return losses and parameters after a few steps, with the jitted step."""
    device = ph.Device(name)
    model, step, arguments = training(kind, device)
    jitted = ph.jit(step, budget=budget)
    ph.manual_seed(3)
    losses = [jitted(*arguments).numpy().tobytes() for _ in range(4)]
    return [*losses, *(p.numpy().tobytes() for p in model.parameters())], jitted.steps[0]


@pytest.mark.parametrize("part", [0.8, 0.4])
def test_a_plan_within_a_budget_is_bitwise_identical(part: float) -> None:
    plain, step = _trained("gpt", "numpy", None)
    (memory,) = step.memory_report().devices
    budget = memory.step - int((1 - part) * memory.arena.nbytes)
    found, again = _trained("gpt", "numpy", budget)
    assert found == plain
    assert again.memory_report().devices[0].step <= budget
    assert len(again.executable.graph.nodes) > len(step.executable.graph.nodes)


def test_values_are_recomputed_only_if_the_budget_requires_it() -> None:
    _, step = _trained("mlp", "numpy", None)
    budget = step.memory_report().devices[0].step
    _, same = _trained("mlp", "numpy", budget)
    assert len(same.executable.graph.nodes) == len(step.executable.graph.nodes)


def test_an_unreachable_budget_is_an_error() -> None:
    with pytest.raises(ph.errors.OutOfMemoryError, match="a step needs at least"):
        _trained("mlp", "numpy", 1000)


def test_memory_grows_with_the_root_of_the_depth() -> None:
    """About sqrt(n) of a chain of n activations must be kept."""
    device = ph.Device("numpy")

    def chain(depth: int) -> tuple[int, int]:
        w = ph.ones((1, 256), device=device).requires_grad_()

        def step(x: ph.Tensor) -> None:
            w.grad = None
            h = x * w
            for _ in range(depth):
                h = ph.sin(ph.exp(h @ mix))
            h.sum().backward()

        mix = ph.ones((256, 256), device=device) / 256
        x = ph.ones((512, 256), device=device)
        full = ph.jit(step).memory_report(x).devices[0]
        part = full.step - 7 * full.arena.nbytes // 10
        return full.arena.nbytes, ph.jit(step, budget=part).memory_report(x).devices[0].arena.nbytes

    full, least = chain(24)
    assert least <= 0.31 * full


def test_fit_finds_the_largest_batch() -> None:
    device = ph.Device("numpy")
    model = nn.Sequential(*[m for _ in range(5) for m in (nn.Linear(32, 32), nn.Tanh())]).to(device)

    def step(x: ph.Tensor) -> ph.Tensor:
        for p in model.parameters():
            p.grad = None
        loss: ph.Tensor = (model(x) ** 2).mean()
        loss.backward()
        return loss

    def batch(n: int) -> ph.Tensor:
        return ph.zeros((n, 32), device=device)

    def needed(n: int) -> int:
        return ph.jit(step).memory_report(batch(n)).devices[0].step

    before = [p.numpy().tobytes() for p in model.parameters()]
    budget = 1 << 20
    found = ph.fit(step, budget, batch=batch)
    assert needed(found.batch_size) <= budget < needed(found.batch_size + 1)
    assert before == [p.numpy().tobytes() for p in model.parameters()]
    assert all(p.grad is None for p in model.parameters())
    assert str(found).startswith(f"batch size {found.batch_size}\n")

    more = ph.fit(lambda n: step(batch(n)), budget, recompute=True)
    assert more.recompute
    assert more.batch_size > 1.3 * found.batch_size
    jitted = ph.jit(step, budget=budget)
    for _ in range(3):
        jitted(batch(more.batch_size))
    assert jitted.memory_report(batch(more.batch_size)).devices[0].step <= budget


def test_fit_leaves_nothing_behind() -> None:
    device = ph.Device("numpy")
    model = nn.Linear(16, 16).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(n: int) -> None:
        optimizer.zero_grad()
        model(ph.zeros((n, 16), device=device)).sum().backward()
        optimizer.step()

    used = device.memory_stats().used
    found = ph.fit(step, 1 << 20)
    assert {p: state for p, state in optimizer.state.items() if state} == {}
    assert device.memory_stats().used - used <= 256
    assert found.report.devices[0].state.nbytes == 2 * found.report.devices[0].parameters.nbytes


def test_fit_raises_if_a_batch_of_one_does_not_fit() -> None:
    device = ph.Device("numpy")
    _, step, _ = training("mlp", device)
    with pytest.raises(ph.errors.OutOfMemoryError, match="a batch of one needs"):
        ph.fit(lambda n: step(ph.zeros((n, 64), device=device), ph.zeros((n,), dtype=ph.int64, device=device)), 1000)


def test_the_order_of_nodes_saves_memory() -> None:
    """Gradients that the optimizer consumes need not all be live at once."""
    device = ph.Device("numpy")
    weights = [ph.ones((64, 64), device=device).requires_grad_() for _ in range(8)]

    def step(x: ph.Tensor) -> None:
        h = x
        for w in weights:
            h = ph.sin(h @ w)
        h.sum().backward()
        with ph.no_grad():
            for w in weights:
                w.sub_(w.grad * 0.01)
                w.grad = None

    (memory,) = ph.jit(step).memory_report(ph.ones((2, 64), device=device)).devices
    assert memory.arena.nbytes < 4 * 64 * 64 * 4


def test_a_module_is_named_where_memory_is_needed_most() -> None:
    device = ph.Device("numpy")
    model = nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 8)).to(device)

    def step(x: ph.Tensor) -> ph.Tensor:
        with ph.no_grad():
            return model(x)

    (memory,) = ph.jit(step).memory_report(ph.Tensor(np.ones((16, 8), np.float32), device=device)).devices
    assert memory.arena.entries[0].name.endswith(("in 0", "in 1"))
