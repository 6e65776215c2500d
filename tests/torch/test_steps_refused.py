"""Effects that a replay cannot repeat are refused, or run eagerly with a warning; results are never silently stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from recorded import Task, both, equal, inputs
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import polyhal.torch
from polyhal.hal.errors import CaptureError

pytestmark = [pytest.mark.usefixtures("torch_on_numpy"), pytest.mark.filterwarnings("error")]


def _item(task: Task, x: torch.Tensor) -> Any:
    return task.step(x).item()


def _shape(task: Task, x: torch.Tensor) -> Any:
    return task.model(x[x > 0][:3])


def _numpy(task: Task, x: torch.Tensor) -> Any:
    return task.model(x).detach().cpu().numpy().tolist()


@pytest.mark.parametrize("function", [_item, _shape, _numpy])
def test_values_cannot_be_read(function: Callable[..., Any]) -> None:
    task = Task()
    task.step(next(inputs()))
    before, gradient = task.state(), task.model[0].weight.grad
    step = polyhal.torch.jit(lambda x: function(task, x), warm_up=False, strict=True)
    with pytest.raises(CaptureError, match=f"test_steps_refused.py:{function.__code__.co_firstlineno + 1}"):
        step(next(inputs()))
    assert equal(before, task.state())
    assert task.model[0].weight.grad is gradient
    assert isinstance(task.optimizer.param_groups[0]["lr"], float)
    task.step(next(inputs()))


def test_an_optimizer_that_reads_values_raises_with_a_remedy() -> None:
    task = Task(lambda p: torch.optim.ASGD(p, lr=0.1))
    step = polyhal.torch.jit(task.step, strict=True)
    x = next(inputs())
    step(x)
    before = task.state()
    with pytest.raises(CaptureError, match="capturable=True"):
        step(x)
    assert equal(before, task.state())
    task = Task(lambda p: torch.optim.ASGD(p, lr=0.1, capturable=True))
    for x in inputs(3):
        polyhal.torch.jit(task.step)(x)


def test_results_with_gradients_are_refused() -> None:
    task = Task()
    step = polyhal.torch.jit(lambda x: task.model(x), strict=True)
    x = next(inputs())
    step(x).sum().backward()
    with pytest.raises(CaptureError, match=r"on which backward\(\) may still be called"):
        step(x)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(step(x), task.model(x))


def test_ops_of_the_cpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")

    @torch.library.custom_op("polyhal_tests::doubled_on_cpu", mutates_args=(), device_types="cpu")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    step = polyhal.torch.jit(lambda x: doubled(x), warm_up=False, strict=True)
    with pytest.raises(CaptureError, match="would run on the CPU"):
        step(torch.eye(3, device="polyhal"))


@pytest.mark.parametrize("kind", ["counter", "list", "state", "number"])
def test_effects_that_a_replay_would_lose_run_eagerly_with_a_reason(kind: str) -> None:
    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.history: list[torch.Tensor] = []
            self.register_buffer("hidden", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if kind == "counter":
                self.calls += 1
                return x * self.calls
            if kind == "list":
                self.history.append(x.sum())
                return x * len(self.history)
            if kind == "state":
                self.hidden = self.hidden + x.sum(0)
                return x + self.hidden
            return x * float(np.random.rand())

    model, other = Stateful().to("polyhal"), Stateful().to("polyhal")
    step = polyhal.torch.jit(lambda x: model(x))
    np.random.seed(0)
    with pytest.warns(UserWarning, match="runs eagerly from now on"):
        replayed = [step(x).cpu() for x in inputs()]
    np.random.seed(0)
    assert equal(replayed, [other(x).cpu() for x in inputs()])
    assert step.steps == []


def test_arrays_of_numpy_are_no_arguments() -> None:
    with pytest.raises(CaptureError, match="from_numpy"):
        polyhal.torch.jit(lambda x: x, warm_up=False, strict=True)(np.zeros(3))


def test_arguments_that_need_gradients_are_refused() -> None:
    x = torch.ones(3, device="polyhal", requires_grad=True)
    with pytest.raises(CaptureError, match=r"x\.detach\(\)"):
        polyhal.torch.jit(lambda x: x * 2, warm_up=False, strict=True)(x)


@pytest.mark.parametrize("preserve", [True, False])
def test_parts_that_are_computed_again_draw_the_same_random_numbers(preserve: bool) -> None:
    class Recomputing(Task):
        def step(self, x: torch.Tensor) -> torch.Tensor:
            first, *rest = self.model

            def part(x: torch.Tensor) -> torch.Tensor:
                hidden: torch.Tensor = rest[0](first(x))
                return F.dropout(hidden, 0.5) if preserve else hidden

            hidden = checkpoint(part, x, use_reentrant=False, preserve_rng_state=preserve)
            self.optimizer.zero_grad()
            loss = F.dropout(rest[1](hidden), 0.1).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss

    def run(task: Task, step: Callable[..., Any]) -> None:
        torch.manual_seed(1)
        task.seen += [step(x).item() for x in inputs(5)]

    both(run, Recomputing)


def test_a_state_of_random_numbers_from_outside_is_not_set_in_a_step() -> None:
    before = torch.polyhal.get_rng_state()

    def step(x: torch.Tensor) -> torch.Tensor:
        torch.polyhal.set_rng_state(before)
        return F.dropout(x)

    with pytest.raises(CaptureError, match="from outside is set"):
        polyhal.torch.jit(step, warm_up=False, strict=True)(torch.ones(3, device="polyhal"))


def test_seeds_are_not_set_in_a_step() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return F.dropout(x)

    with pytest.raises(CaptureError, match="the seed of random numbers is set"):
        polyhal.torch.jit(step, warm_up=False, strict=True)(torch.ones(3, device="polyhal"))


def test_tensors_that_the_step_refers_to_are_not_passed_as_well() -> None:
    task = Task()
    weight = task.model[0].weight

    @polyhal.torch.jit(strict=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        weight.add_(1)
        return x * 2

    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(4, 3, device="polyhal")
            assert torch.equal(step(x), x * 2)
        with pytest.raises(CaptureError, match="pass a clone"):
            step(weight)
        assert torch.equal(step(x), x * 2)


def test_an_interrupt_within_a_recording_leaves_everything_as_it_was() -> None:
    eager, task, pressed = Task(), Task(), [False]

    def body(x: torch.Tensor) -> torch.Tensor:
        loss = task.step(x)
        if pressed[0]:
            raise KeyboardInterrupt
        return loss

    step = polyhal.torch.jit(body)
    for i, x in enumerate(inputs()):
        pressed[0] = i == 4
        if pressed[0]:
            before = task.state()
            with pytest.raises(KeyboardInterrupt):
                step(x)
            assert equal(before, task.state())
            pressed[0] = False
        assert torch.equal(step(x), eager.step(x))
        assert equal(eager.state(), task.state())
    assert len(step.steps) == 1


def test_steps_within_steps_are_part_of_the_outer_one() -> None:
    inner = polyhal.torch.jit(lambda x: x + 1, warm_up=False)
    outer = polyhal.torch.jit(lambda x: inner(x) * 2, warm_up=False)
    for i in range(4):
        x = torch.full((2,), float(i), device="polyhal")
        assert inner(x).tolist() == [i + 1] * 2
        assert outer(x).tolist() == [2 * i + 2] * 2
    assert len(outer.steps) == 1
