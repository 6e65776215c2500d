"""Captured steps that use two devices: a model in two parts, and replicas that train on the mean of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import TEST_DEVICES

import polyhal as ph
from polyhal import Device, Tensor, jit, nn, optim
from polyhal.hal.compile.ir.parse import parse

OTHER = next((n for n in reversed(TEST_DEVICES) if n not in ("numpy", "numpy:no_f64")), "numpy:contiguous_only")
PAIRS = [("numpy", OTHER), (OTHER, "numpy:no_f64")]
Step = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]
Parts = tuple[Step, list[nn.Module]]


def in_two_parts(devices: Sequence[Device]) -> Parts:
    ph.manual_seed(1)
    first, second = nn.Linear(6, 8, device=devices[0]), nn.Linear(8, 3, device=devices[1])
    optimizer = optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2)

    def step(xs: Sequence[Tensor], ys: Sequence[Tensor]) -> Tensor:
        optimizer.zero_grad()
        hidden = nn.functional.dropout(first(xs[0]).relu(), 0.3).to(devices[1])
        loss = nn.functional.cross_entropy(second(hidden), ys[1])
        loss.backward()
        optimizer.step()
        return loss

    return step, [first, second]


def replicas(devices: Sequence[Device]) -> Parts:
    models = []
    for device in devices:
        ph.manual_seed(1)
        models.append(nn.Linear(6, 3, device=device))
    optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]

    def step(xs: Sequence[Tensor], ys: Sequence[Tensor]) -> Tensor:
        losses = []
        for model, optimizer, x, y in zip(models, optimizers, xs, ys, strict=True):
            optimizer.zero_grad()
            losses.append(nn.functional.cross_entropy(model(x), y))
            losses[-1].backward()
        for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
            mean = (p.grad + q.grad.to(devices[0])) * 0.5
            p.grad.copy_(mean)
            q.grad.copy_(mean.to(devices[1]))
        for optimizer in optimizers:
            optimizer.step()
        return (losses[0] + losses[1].to(devices[0])) * 0.5

    return step, models


def batch(devices: Sequence[Device], rng: np.random.Generator) -> tuple[list[Tensor], list[Tensor]]:
    xs = [Tensor(rng.standard_normal((4, 6)).astype(np.float32), device=d) for d in devices]
    return xs, [Tensor(rng.integers(0, 3, 4).astype(np.int32), device=d) for d in devices]


@pytest.mark.parametrize("names", PAIRS)
@pytest.mark.parametrize("build", [in_two_parts, replicas])
def test_training_on_two_devices(names: Sequence[str], build: Callable[[Sequence[Device]], Parts]) -> None:
    devices = [Device(n) for n in names]
    outcomes: list[list[Any]] = []
    for captured in (False, True):
        step, models = build(devices)
        run, rng = jit(step) if captured else step, np.random.default_rng(0)
        ph.manual_seed(2)
        losses = [run(*batch(devices, rng)).item() for _ in range(5)]
        outcomes.append([losses, *(p.numpy() for m in models for p in m.parameters())])
        if captured:
            (graph,) = run.graphs  # type: ignore[attr-defined]
            assert f"on {devices[0]}" in str(graph)
            assert "transfer" in str(graph)
            assert str(parse(str(graph))) == str(graph)
    for eager, replayed in zip(*outcomes, strict=True):
        np.testing.assert_allclose(replayed, eager, rtol=1e-5, atol=1e-6)
    if build is replicas:
        np.testing.assert_allclose(outcomes[1][1], outcomes[1][3], rtol=1e-5, atol=1e-6)


def test_a_step_on_two_devices_from_a_file(tmp_path: Path) -> None:
    devices = [Device(n) for n in PAIRS[0]]
    step, _ = in_two_parts(devices)
    run, rng = jit(step), np.random.default_rng(0)
    for _ in range(2):
        run(*batch(devices, rng))
    path = ph.save_graph(run, tmp_path / "step.safetensors")
    loaded, alone = ph.load_graph(path), ph.load_graph(path, "numpy")
    for _ in range(2):
        xs, ys = batch(devices, rng)
        expected = run(xs, ys).item()
        used = [x.numpy() for x in (*xs, *ys)]
        np.testing.assert_allclose(alone(*used).item(), expected, rtol=1e-5)
        np.testing.assert_allclose(loaded(*xs, *ys).item(), expected, rtol=1e-5)
