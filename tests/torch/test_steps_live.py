"""Inputs that each run of a recorded step reads: learning rates, numbers, data on the CPU, random numbers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from recorded import Task, both, equal, inputs
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR

import polyhal.torch

pytestmark = [pytest.mark.usefixtures("torch_on_numpy"), pytest.mark.filterwarnings("error")]


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_learning_rates_set_between_calls(kind: str) -> None:
    def make() -> Task:
        return Task(None if kind == "sgd" else lambda p: torch.optim.AdamW(p, lr=0.1))

    def run(task: Task, step: Callable[..., Any]) -> None:
        for i, x in enumerate(inputs()):
            task.optimizer.param_groups[0]["lr"] = 0.1 / (1 + i)
            task.seen.append(step(x).item())

    assert len(both(run, make).steps) == 1


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("schedule", [lambda o: StepLR(o, 2), lambda o: CosineAnnealingLR(o, 5)])
def test_schedulers(inside: bool, schedule: Callable[[Any], Any]) -> None:
    class Scheduled(Task):
        def __init__(self) -> None:
            super().__init__()
            self.schedule = schedule(self.optimizer)

        def step(self, x: torch.Tensor) -> Any:
            loss = super().step(x)
            if not inside:
                return loss, 0.0
            self.schedule.step()
            return loss, self.schedule.get_last_lr()[0]

    def run(task: Any, step: Callable[..., Any]) -> None:
        for x in inputs():
            loss, rate = step(x)
            task.seen += [loss.item(), rate]
            if not inside:
                task.schedule.step()

    assert len(both(run, Scheduled).steps) == 1


def test_settings_that_turn_out_to_change_become_live() -> None:
    def make() -> Task:
        return Task(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))

    def run(task: Task, step: Callable[..., Any]) -> None:
        schedule = OneCycleLR(task.optimizer, 0.2, total_steps=10)
        for x in inputs():
            task.seen.append(step(x).item())
            schedule.step()

    assert len(both(run, make).steps) == 1


def test_settings_that_are_parameters_of_ops_become_live() -> None:
    def make() -> Task:
        return Task(lambda p: torch.optim.AdamW(p, lr=0.1))

    def run(task: Task, step: Callable[..., Any]) -> None:
        for i, x in enumerate(inputs()):
            task.optimizer.param_groups[0]["betas"] = (0.9, 0.99 + 0.001 * i)
            task.seen.append(step(x).item())

    assert len(both(run, make).steps) == 1


@pytest.mark.parametrize("kind", ["AdamW", "RAdam"])
def test_optimizers_of_parameters_in_half_precision(kind: str) -> None:
    class Half(Task):
        def __init__(self) -> None:
            super().__init__()
            self.model.bfloat16()
            self.optimizer = getattr(torch.optim, kind)(self.model.parameters(), lr=0.1)

    def run(task: Task, step: Callable[..., Any]) -> None:
        for x in inputs():
            task.seen.append(step(x.bfloat16()).item())

    assert both(run, Half).steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_changing_number_is_the_factor_of_a_product_or_quotient(dtype: torch.dtype) -> None:
    def step(x: torch.Tensor, y: torch.Tensor, factor: float) -> Any:
        changed = x.clone()
        changed.addcmul_(x, y, value=factor)
        return torch.addcmul(x, x, y, value=factor), torch.addcdiv(x, x, y, value=factor), changed

    recorded = polyhal.torch.jit(step, warm_up=False)
    generator = torch.Generator().manual_seed(1)
    for factor in (0.3, -1.7, 2.9, 1.0):
        x, y = (torch.randn(9, generator=generator).to("polyhal", dtype) for _ in range(2))
        for found, eager in zip(recorded(x, y, factor), step(x, y, factor), strict=True):
            assert found.dtype is dtype
            torch.testing.assert_close(found, eager, rtol=2 * torch.finfo(dtype).eps, atol=0.0)
    assert len(recorded.steps) == 1


def test_floats_among_the_arguments() -> None:
    step = polyhal.torch.jit(lambda x, scale: (x * scale + 1 / (1 + scale), scale + 1), warm_up=False)
    for i, x in enumerate(inputs()):
        y, plus = step(x, 0.5 * i)
        assert torch.equal(y, x * (0.5 * i) + 1 / (1 + 0.5 * i))
        assert plus == 0.5 * i + 1
    assert len(step.steps) == 1


def test_a_decision_by_a_float_takes_both_ways() -> None:
    step = polyhal.torch.jit(lambda x, scale: x * scale if scale > 1 else x - scale, warm_up=False)
    for scale in (0.5, 2.0, 0.25, 3.0, 1.0, 2.0, 0.5):
        x = torch.randn(4, device="polyhal")
        assert torch.equal(step(x, scale), x * scale if scale > 1 else x - scale)
    assert len(step.steps) == 2


def test_cpu_tensors_are_read_at_each_call() -> None:
    offset = torch.zeros(3)

    @polyhal.torch.jit(warm_up=False)
    def step(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scaled = image.float() / 255 + offset
        return (scaled.to("polyhal") * 2).sum(), scaled.max()

    for i in range(6):
        image = torch.randint(255, (4, 3), dtype=torch.uint8)
        offset.fill_(i)
        total, largest = step(image)
        wanted = image.float() / 255 + i
        assert total.item() == pytest.approx(2 * wanted.sum().item(), rel=1e-6)
        assert largest.device.type == "cpu"
        assert torch.equal(largest, wanted.max())
    assert len(step.steps) == 1


def test_data_made_of_python_objects_is_read_at_each_call() -> None:
    table = np.zeros(3, dtype=np.float32)
    numbers = [0.0, 1.0]

    @polyhal.torch.jit(warm_up=False)
    def step(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor(table, device="polyhal").sum() + torch.from_numpy(table).to("polyhal")[0]

    for i in range(6):
        table[:] = i
        x = torch.randn(3, device="polyhal")
        assert torch.equal(step(x), x + 3.0 * i + 1.0 * i)
    assert len(step.steps) == 1
    listed = polyhal.torch.jit(lambda x: x + torch.tensor(numbers, device="polyhal"), warm_up=False)
    for i in range(6):
        numbers[0] = float(i)
        assert listed(torch.zeros(2, device="polyhal")).tolist() == [i, 1.0]


def test_random_numbers_go_on() -> None:
    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        noise = torch.rand(3).to("polyhal")  # drawn on the CPU
        return F.dropout(x, 0.5), torch.randn_like(x), noise

    drawn = []
    for function in (step, polyhal.torch.jit(step)):
        torch.manual_seed(4)
        drawn.append([y.cpu() for x in inputs() for y in function(x)])
    assert equal(*drawn)
    assert not torch.equal(drawn[1][-1], drawn[1][-4])


def test_numbers_that_another_thread_draws_while_a_step_is_recorded_do_not_repeat() -> None:
    drawn: queue.SimpleQueue[float] = queue.SimpleQueue()

    def step(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: drawn.put(torch.rand(1).item()))
        thread.start()
        thread.join()
        return x + 1

    recorded = polyhal.torch.jit(step, strict=True)
    for x in inputs(3):  # once op by op, and recorded twice
        recorded(x)
    assert len({drawn.get() for _ in range(3)}) == 3


def test_step_counts_of_the_cpu_go_on_and_are_saved() -> None:
    def make() -> Task:
        return Task(lambda p: torch.optim.AdamW(p, lr=0.1))

    def run(task: Task, step: Callable[..., Any]) -> None:
        for x in inputs(6):
            task.seen.append(step(x).item())
            state = task.optimizer.state_dict()["state"]
            task.seen += [state[0]["step"].item(), state[0]["exp_avg"].sum().item()]
        assert task.optimizer.state[task.model[0].weight]["step"].device.type == "cpu"

    both(run, make)


def test_tensors_filled_with_numbers_that_change() -> None:
    step = polyhal.torch.jit(lambda x, value: x + torch.full((3,), value, device="polyhal"), warm_up=False)
    for i in range(5):
        assert step(torch.zeros(3, device="polyhal"), i - 0.5).tolist() == [i - 0.5] * 3
    assert len(step.steps) == 1


@pytest.mark.parametrize("value", [2.5, 3, torch.tensor(0.5)])
def test_a_mask_without_axes_fills_all_of_a_tensor_or_nothing(value: Any) -> None:
    def fill(x: torch.Tensor, flag: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, z = x * 2, x[0, 0] * 2
        y[flag > 0] = value
        z[flag <= 0] = value
        return y, z

    step = polyhal.torch.jit(fill, strict=True)
    for x, flag in zip(inputs(), (1.0, -1.0, 0.0, 2.0, -3.0), strict=False):
        found = step(x, torch.tensor(flag, device="polyhal"))
        assert equal([f.cpu() for f in found], fill(x.cpu(), torch.tensor(flag)))


@pytest.mark.parametrize("make", [torch.clone, torch.detach, lambda a: a.new_ones(2)])
def test_gradients_of_leaves_that_a_step_makes_are_those_of_the_call(make: Callable[..., torch.Tensor]) -> None:
    def step(a: torch.Tensor) -> Any:
        leaf = make(a).requires_grad_()
        (leaf * leaf * a).sum().backward()
        first, leaf.grad = leaf.grad, None
        (leaf * a).sum().backward()
        return first, leaf.grad

    recorded = polyhal.torch.jit(step)
    for k in range(5):
        a = torch.tensor([1.0, 3.0]) + k
        for found, expected in zip(recorded(a.to("polyhal")), step(a), strict=True):
            assert torch.equal(found.cpu(), expected)
    assert len(recorded.graphs) == 1
