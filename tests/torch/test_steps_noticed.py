"""Changes that record a step again or take effect in place: modes, replaced tensors, gradients, numbers it refers to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from recorded import Task, both, equal, inputs
from torch import nn

import polyhal.torch

pytestmark = [pytest.mark.usefixtures("torch_on_numpy"), pytest.mark.filterwarnings("error")]


def test_modes_and_frozen_parameters() -> None:
    def run(task: Task, step: Callable[..., Any]) -> None:
        task.model[1] = nn.Dropout(0.5)
        torch.polyhal.manual_seed(1)
        for i, x in enumerate(inputs(12)):
            task.model.train(i % 4 < 2)
            task.model[0].weight.requires_grad = i < 6
            task.seen.append(step(x).item())

    both(run)


def test_replaced_tensors() -> None:
    def run(task: Task, step: Callable[..., Any]) -> None:
        for i, x in enumerate(inputs(14)):
            if i == 4:
                task.model.load_state_dict({k: v * 0.5 for k, v in task.model.state_dict().items()})
            if i == 5:
                task.model[0].weight.data = torch.ones(4, 3, device="polyhal")
            if i == 8:
                task.optimizer.load_state_dict(copy.deepcopy(task.optimizer.state_dict()))
            if i == 11:
                torch.manual_seed(5)
                task.model[2] = nn.Linear(4, 2).to("polyhal")
                task.optimizer.add_param_group({"params": list(task.model[2].parameters()), "lr": 0.01})
            task.seen.append(step(x).item())

    both(run)


def test_gradients() -> None:
    def run(task: Task, step: Callable[..., Any]) -> None:
        for i, x in enumerate(inputs(9)):
            if i == 5:
                task.optimizer.zero_grad()
            task.seen.append(step(x).item())
            task.seen += [p.grad.sum().item() for p in task.model.parameters() if p.grad is not None]

    both(run)


@pytest.mark.parametrize("to_none", [True, False])
def test_accumulated_gradients(to_none: bool) -> None:
    class Accumulating(Task):
        def step(self, x: torch.Tensor) -> torch.Tensor:
            loss = self.model(x).square().mean()
            loss.backward()
            return loss.detach()

    def run(task: Task, step: Callable[..., Any]) -> None:
        for i, x in enumerate(inputs(16)):
            task.seen.append(step(x).item())
            if i % 3 == 2:
                task.optimizer.step()
                task.optimizer.zero_grad(set_to_none=to_none)

    both(run, Accumulating)


def test_two_steps_share_gradients() -> None:
    eager, recorded = Task(), Task()

    def backward(task: Task, x: torch.Tensor) -> None:
        task.optimizer.zero_grad()
        task.model(x).square().mean().backward()

    first = polyhal.torch.jit(lambda x: backward(recorded, x))
    second = polyhal.torch.jit(lambda: recorded.optimizer.step())
    for x in inputs(10):
        backward(eager, x)
        eager.optimizer.step()
        first(x)
        second()
        assert equal(eager.state(), recorded.state())
    assert len(second.steps) == 1


SCALE = 1.0


def test_python_numbers_behind_the_function() -> None:
    global SCALE
    settings = {"offset": 0.0}
    power = 2

    def change(to: int) -> None:
        nonlocal power
        power = to

    @polyhal.torch.jit(warm_up=False)
    def step(x: torch.Tensor) -> torch.Tensor:
        return x**power * SCALE + settings["offset"]

    for i in range(9):
        SCALE, settings["offset"] = float(i // 5), float(i // 4)
        change(2 + i // 7)
        x = torch.arange(3.0, device="polyhal")
        assert torch.equal(step(x), x**power * SCALE + settings["offset"])


class _Scale:
    """An object that a step reads by its special methods only."""

    def __init__(self) -> None:
        self.by = 2.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by

    def __getitem__(self, power: int) -> float:
        return self.by**power


def test_attributes_that_special_methods_read() -> None:
    called, subscripted = _Scale(), _Scale()
    step = polyhal.torch.jit(lambda x: called(x) + subscripted[2])
    x = torch.ones(3, device="polyhal")
    for i in range(12):
        (called if i % 2 else subscripted).by = 1.0 + i // 4
        assert torch.equal(step(x), called(x) + subscripted[2])


class _Slots:
    __slots__ = ("by",)


class _Inherits:
    by = 2.0

    @property
    def doubled(self) -> float:
        return self.by * 2

    @classmethod
    def squared(cls) -> float:
        return cls.by**2


def _with_attribute(x: torch.Tensor) -> torch.Tensor:
    return x * _with_attribute.by  # type: ignore[attr-defined]


def test_attributes_of_classes_slots_and_functions() -> None:
    slots, inherits = _Slots(), _Inherits()
    slots.by = _with_attribute.by = 2.0  # type: ignore[attr-defined]

    def body(x: torch.Tensor) -> torch.Tensor:
        return _with_attribute(x) + slots.by + inherits.by + inherits.doubled + inherits.squared()

    step = polyhal.torch.jit(body)
    x = torch.ones(3, device="polyhal")
    for i, target in enumerate((slots, _Inherits, inherits, _with_attribute)):
        for _ in range(4):
            assert torch.equal(step(x), body(x))
        target.by = 3.0 + i  # type: ignore[union-attr, attr-defined]
        assert torch.equal(step(x), body(x))


def test_memory_that_is_written_between_calls_is_seen() -> None:
    bias = torch.zeros(3, device="polyhal")
    step = polyhal.torch.jit(lambda x: x + bias)
    for i in range(5):
        bias.fill_(i)
        assert step(torch.zeros(3, device="polyhal")).tolist() == [i] * 3


def test_stale_graphs_of_autograd_are_refused() -> None:
    task = Task()
    step = polyhal.torch.jit(task.step)
    for x in inputs(4):
        step(x)
    loss = task.model(x).square().mean()
    step(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_autocast() -> None:
    def run(task: Task, step: Callable[..., Any]) -> None:
        for i, x in enumerate(inputs(9)):
            with torch.autocast("polyhal", torch.bfloat16, enabled=i % 5 > 1):
                task.seen.append(step(x).item())

    both(run)
