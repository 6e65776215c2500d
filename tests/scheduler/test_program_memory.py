"""Programs on a device with 64 MiB and without 64-bit integers: a step is planned to fit, or refused before it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_backend import GraphBackend

import polyhal
from polyhal import optim
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.errors import OutOfMemoryError
from polyhal.hal.layout import Spec
from polyhal.nn import functional as F

ROWS = 256
"""Rows of 1024 floats: 1 MiB."""


def _small() -> tuple[GraphBackend, Device]:
    backend = GraphBackend(selector="small", keeps_values=True)
    return backend, Device.opened("small", backend)


def _chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = polyhal.sin(x) + 0.5
    return x


def _input(device: Device | str, rows: int = ROWS) -> Any:
    return polyhal.tensor(np.linspace(0, 1, rows * 1024, dtype=np.float32).reshape(rows, 1024), device=device)


def test_a_program_that_fits_gets_its_workspace() -> None:
    backend, device = _small()
    step = polyhal.jit(lambda x: _chain(x, 5), warm_up=False)
    x = _input(device)
    result = step(x).numpy()
    np.testing.assert_allclose(result, _chain(_input("numpy"), 5).numpy(), rtol=1e-6)
    assert backend.runs == 1
    assert step.memory_report(x).devices[0].workspace.nbytes == 10 * ROWS * 4096


def test_a_step_whose_program_does_not_fit_runs_by_launches() -> None:
    backend, device = _small()
    step = polyhal.jit(lambda x: _chain(x, 50), warm_up=False)
    x = _input(device)
    result = step(x).numpy()
    np.testing.assert_allclose(result, _chain(_input("numpy"), 50).numpy(), rtol=1e-5)
    assert backend.runs == 0
    assert "no programs on small: a run with programs needs 10" in step.explain()


def test_a_step_that_fits_in_no_way_is_refused_before_it_runs() -> None:
    backend, device = _small()
    state = polyhal.zeros((3,), device=device)

    @lambda function: polyhal.jit(function, warm_up=False)
    def step(x: Any) -> Any:
        state.add_(1)
        return [polyhal.exp(x) * k + polyhal.sin(x) for k in range(1, 5)]

    x = _input(device, 16 * ROWS)
    with pytest.raises(OutOfMemoryError, match="captured step"):
        step(x)
    assert backend.runs == 0
    assert state.tolist() == [0, 0, 0]
    assert (x[0, :3] + 1).numpy().shape == (3,), "the device computes afterwards"


def test_a_budget_that_programs_exceed_is_kept_by_launches() -> None:
    backend, device = _small()
    budget = 12 << 20
    step = polyhal.jit(lambda x: _chain(x, 20), warm_up=False, budget=budget)
    x = _input(device)
    result = step(x).numpy()
    np.testing.assert_allclose(result, _chain(_input("numpy"), 20).numpy(), rtol=1e-5)
    assert backend.runs == 0
    assert step.memory_report(x).devices[0].step <= budget
    assert "the budget is 12" in step.explain()


def test_programs_contain_no_dtype_that_the_device_lacks() -> None:
    backend, device = _small()
    polyhal.manual_seed(1 << 40)
    rng = np.random.default_rng(0)
    w = polyhal.tensor(rng.standard_normal((6, 5)).astype(np.float32), device=device, requires_grad=True)
    optimizer = optim.AdamW([w], lr=0.1)
    x, y = polyhal.tensor(rng.standard_normal((8, 6)).astype(np.float32), device=device), np.arange(8) % 5

    @polyhal.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = F.dropout(x, 0.5) @ w + polyhal.rand((8, 5), device=device)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return loss, logits.argmax(-1)

    for _ in range(3):
        loss, best = step(x, polyhal.tensor(y, device=device))
    assert np.isfinite(loss.item())
    assert best.dtype is dtypes.int32
    (graph,) = backend.programs
    values = [v for node in graph.nodes for v in node.results]
    assert {v.spec.dtype for v in (*values, *graph.inputs) if isinstance(v.spec, Spec)} <= dtypes.REQUIRED
