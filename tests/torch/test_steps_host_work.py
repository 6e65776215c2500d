"""Recorded steps with work of the host in their middle, on elements that differ from run to run."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from left_programs import DEVICE, Program, host
from recorded import Task, equal, inputs
from torch.nn import functional as F

import polyhal.torch

pytestmark = [pytest.mark.usefixtures("eager_variances"), pytest.mark.filterwarnings("error")]


def _assigned(cost: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the assignment with the least cost, as `scipy.optimize.linear_sum_assignment` does."""
    table = np.asarray(cost)
    rows, columns = table.shape
    best = min(itertools.permutations(range(rows), columns), key=lambda order: table[list(order), range(columns)].sum())
    order = np.argsort(best)
    return np.array(best)[order], order


ASSIGNED = polyhal.torch.host_function(_assigned)


def _matches(p: Program, x: torch.Tensor) -> torch.Tensor:
    """The loss of a detector: hidden rows are matched with targets in two batches, at the least cost."""
    hidden = p.model[1:3](p.model[0](x)) + p.memory.mean()
    targets = torch.linspace(-1, 1, 12, device=DEVICE).reshape(3, 4)
    p.memory.mul_(0.5)
    with torch.no_grad():
        cost = torch.cdist(hidden, targets).cpu()
    pairs = [ASSIGNED(part) for part in cost.split([2, 1], -1)]
    pairs = [(torch.as_tensor(i, dtype=torch.int64), torch.as_tensor(j, dtype=torch.int64)) for i, j in pairs]
    rows = torch.cat([i for i, _ in pairs])
    scale = torch.ones(3)
    scale[0] = 0.25
    weights = torch.full_like(rows, 2, dtype=torch.float32) * scale
    found = torch.cat([t[j] for t, (_, j) in zip(targets.split([2, 1]), pairs, strict=True)])
    p.train(loss := ((hidden[rows] - found).square().mean(1) * weights.to(DEVICE)).sum())
    return loss.detach()


def _sorts_in_numpy(p: Program, x: torch.Tensor) -> Any:
    """Functions of NumPy, a second copy that depends on the first, and results on the host."""
    order = np.argsort(-x[:, 0].cpu().numpy() * 2.0)
    chosen = x[order[:3]]
    again = np.roll(chosen.sum(1).to("cpu").numpy().argsort(), 1)
    p.train(p.loss(torch.cat([chosen, chosen[again]])))
    return chosen, again, order.astype(np.float32), x.mean(0).cpu()


def _loops(p: Program, x: torch.Tensor) -> torch.Tensor:
    """Updates between copies: values of earlier nodes are still right."""
    for _ in range(3):
        largest = p.memory.cpu().sum(0).argmax(0, keepdim=True)
        p.memory.add_(x[:4]).mul_(0.5)
        p.memory[largest] = p.memory[largest] - 1
        p.train(F.dropout(p.model(x), 0.5)[largest].square().mean())
    return p.memory + 0


@pytest.mark.parametrize("body", [_matches, _sorts_in_numpy, _loops], ids=lambda f: f.__name__.strip("_"))
def test_host_work_is_repeated_in_each_run(body: Callable[..., Any], torch_device: str) -> None:
    def run(wrap: Callable[..., Any]) -> tuple[list[Any], Any]:
        p = Program()
        step = wrap(lambda x: body(p, x))
        return [(_plain(step(x.to(DEVICE))), p.state()) for x in inputs(6, "cpu")], step

    eager, _ = run(lambda f: f)
    found, step = run(lambda f: polyhal.torch.jit(f, strict=True))
    assert [i for i, (a, b) in enumerate(zip(eager, found, strict=True)) if a != b] == []
    assert len(step.steps) == 1
    assert "host_call" in step.explain()


def _plain(x: Any) -> Any:
    """Return results on the host, as comparable objects."""
    if isinstance(x, np.ndarray):
        return x.dtype, x.tobytes()
    return [_plain(v) for v in x] if isinstance(x, tuple) else host(x)


def test_errors_of_host_functions_are_raised_before_any_effect(torch_on_numpy: str) -> None:
    @polyhal.torch.host_function
    def positive(table: torch.Tensor) -> np.ndarray:
        if (table > 100).any():
            raise ValueError(f"{table.max().item()} is too large")
        return table.numpy().argmax(0)

    task, memory = Task(lambda p: torch.optim.AdamW(p, lr=0.1)), torch.zeros(3, device=DEVICE)

    @polyhal.torch.jit(strict=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        memory.add_(1)
        return task.step(x[torch.as_tensor(positive(x.cpu()))]).detach()

    xs = list(inputs(5))
    for x in xs[:4]:
        step(x)
    before = host([task.state(), memory])
    with pytest.raises(ValueError, match="1000"):
        step(torch.full_like(xs[4], 1000.0))
    assert host([task.state(), memory]) == before
    step(xs[4])
    assert len(step.steps) == 1


def test_programs_import_known_functions_by_name(torch_on_numpy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is a global of the program, which recording replaces: that does not change the program."""
    optimize = ModuleType("scipy.optimize")
    vars(optimize)["linear_sum_assignment"] = _assigned
    monkeypatch.setitem(sys.modules, "scipy.optimize", optimize)
    monkeypatch.setitem(globals(), "linear_sum_assignment", _assigned)

    @polyhal.torch.jit(strict=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        return x[torch.as_tensor(linear_sum_assignment(x.cpu())[0])]  # noqa: F821

    xs = list(inputs(4))
    assert equal([step(x).cpu() for x in xs], [x.cpu()[_assigned(x.cpu())[0]] for x in xs])
    assert len(step.steps) == 1
    monkeypatch.setitem(globals(), "linear_sum_assignment", lambda table: (np.arange(2), None))
    assert equal([step(xs[0]).cpu()], [xs[0][:2].cpu()])


def test_other_shapes_are_recorded_again_until_the_step_is_given_up(torch_on_numpy: str) -> None:
    limit = torch.zeros(())

    def body(p: Program, x: torch.Tensor) -> torch.Tensor:
        hits = x.cpu().sum(1).gt(limit).nonzero()
        p.train(p.loss(x) * hits.shape[0])
        return x[hits[:, 0]] * hits.shape[0]

    def run(wrap: Callable[..., Any], limits: list[float]) -> tuple[list[Any], Any]:
        p, states = Program(), []
        step = wrap(lambda x: body(p, x))
        for number, x in zip(limits, inputs(len(limits)), strict=True):
            limit.fill_(number)
            states.append((host(step(x)), p.state()))
        return states, step

    two_shapes = [-9.0] * 4 + [9.0] * 4 + [-9.0] * 2
    found, step = run(polyhal.torch.jit, two_shapes)
    assert found == run(lambda f: f, two_shapes)[0]
    assert len(step.steps) == 2
    many_shapes = [-9.0, 0.0, 9.0, 0.5, -0.5, 1.0, -9.0, 0.0]
    with pytest.warns(UserWarning, match="runs eagerly from now on"):
        found, step = run(lambda f: polyhal.torch.jit(f, max_graphs=1), many_shapes)
    assert found == run(lambda f: f, many_shapes)[0]
    assert step.steps == []


def _decides(p: Program, x: torch.Tensor) -> Any:
    table = x.cpu()
    return x * 2 if table[0, 0] > 0 else x * 3


def _counts(p: Program, x: torch.Tensor) -> Any:
    return x * float(x.cpu().numpy().sum())


def _changes(p: Program, x: torch.Tensor) -> Any:
    table = x.cpu()
    table[0] = 1
    return table.to(DEVICE) + x


def _undeclared(p: Program, x: torch.Tensor) -> Any:
    return x[torch.as_tensor(_assigned(x.cpu())[0])]


@pytest.mark.parametrize("body", [_decides, _counts, _changes, _undeclared], ids=lambda f: f.__name__.strip("_"))
def test_other_uses_of_elements_run_eagerly(body: Callable[..., Any], torch_on_numpy: str) -> None:
    p = Program()
    step = polyhal.torch.jit(lambda x: body(p, x), warm_up=False)
    with pytest.warns(UserWarning, match=r"test_steps_host_work\.py"):
        found = [step(x).cpu() for x in inputs(3)]
    assert equal(found, [body(p, x).cpu() for x in inputs(3)])
    assert step.steps == []
