"""What a recorded step reads anew at each call, what it notices, and what it refuses: nothing is silently old."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR
from torch.utils.checkpoint import checkpoint

import polyhal.torch
from polyhal.hal.errors import CaptureError

pytestmark = pytest.mark.usefixtures("torch_on_numpy")


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Task:
    """A small model with its optimizer; two of the same seed are equal."""

    def __init__(self, optimizer: Callable[[Any], torch.optim.Optimizer] | None = None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to("polyhal")
        made = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5))
        self.optimizer = made(self.model.parameters())
        self.seen: list[float] = []

    def step(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[torch.Tensor]:
        kept = [x for s in self.optimizer.state.values() for x in s.values() if isinstance(x, torch.Tensor)]
        found = [*self.model.parameters(), *self.model.buffers(), *kept]
        return [x.detach().cpu().clone() for x in found]


def inputs(count: int = 8, device: str = "polyhal") -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        yield torch.randn(5, 3, generator=generator).to(device)


def equal(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def both(run: Callable[[Task, Callable[..., Any]], None], make: Callable[[], Task] = Task) -> Any:
    """Run a program with a step as it stands, and with the step recorded; both must end the same. Returns the step."""
    eager, recorded = make(), make()
    run(eager, eager.step)
    step = polyhal.torch.jit(recorded.step)
    run(recorded, step)
    assert eager.seen == recorded.seen
    assert equal(eager.state(), recorded.state())
    return step


# --- live -----------------------------------------------------------------------------------------------------------


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


# --- trees ----------------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    left: torch.Tensor
    right: Any


def test_trees_of_arguments_and_results() -> None:
    @polyhal.torch.jit
    def step(batch: Any, *, name: str, flags: tuple[bool, int]) -> Any:
        total = batch["x"] + batch["more"][0].left * batch["more"][0].right
        return Pair(total, {"name": name, "sum": total.sum()}), batch["x"], None, flags[1]

    for i in range(5):
        x, y = torch.randn(3, device="polyhal"), torch.randn(3, device="polyhal")
        batch = {"x": x, "more": [Pair(y, 0.5 + i)]}
        pair, same_x, nothing, flag = step(batch, name="n", flags=(True, 3))
        assert isinstance(pair, Pair)
        assert torch.equal(pair.left, x + y * (0.5 + i))
        assert pair.right["name"] == "n"
        assert torch.equal(pair.right["sum"], pair.left.sum())
        assert same_x is x
        assert (nothing, flag) == (None, 3)
    assert len(step.steps) == 1


def test_views_and_shapes_among_the_arguments() -> None:
    step = polyhal.torch.jit(lambda x: (x[:, 1:].sum(), x.t()[0] + 1))
    for i, shape in enumerate([(4, 3)] * 4 + [(2, 3)] * 3 + [(4, 3)] * 2):
        base = torch.randn(shape[1], shape[0], device="polyhal")
        x = base.t() if i % 2 else torch.cat([base.t()] * 2)[: shape[0]]
        total, row = step(x)
        assert torch.equal(row, x[:, 0] + 1)
        assert total.item() == pytest.approx(x[:, 1:].sum().item(), rel=1e-6)


def test_arguments_may_be_changed_in_place() -> None:
    @polyhal.torch.jit
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y[0] = 7.0
        return x[1:]

    for _ in range(5):
        x, y = torch.ones(3, device="polyhal"), torch.arange(3.0, device="polyhal")
        rest = step(x, y)
        assert x.tolist() == [1, 2, 3]
        assert y.tolist() == [7, 1, 2]
        x.fill_(0)
        assert rest.tolist() == [0, 0]  # a view of the argument


# --- noticed --------------------------------------------------------------------------------------------------------


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


# --- refused --------------------------------------------------------------------------------------------------------


def _branch(task: Task, x: torch.Tensor) -> Any:
    return x if task.model(x).sum() > 0 else -x


def _item(task: Task, x: torch.Tensor) -> Any:
    return task.step(x).item()


def _shape(task: Task, x: torch.Tensor) -> Any:
    return task.model(x[x > 0][:3])


def _numpy(task: Task, x: torch.Tensor) -> Any:
    return task.model(x).detach().cpu().numpy()


@pytest.mark.parametrize("function", [_branch, _item, _shape, _numpy])
def test_values_cannot_be_read(function: Callable[..., Any]) -> None:
    task = Task()
    task.step(next(inputs()))
    before, gradient = task.state(), task.model[0].weight.grad
    step = polyhal.torch.jit(lambda x: function(task, x), warm_up=False)
    with pytest.raises(CaptureError, match=f"test_steps_live.py:{function.__code__.co_firstlineno + 1}"):
        step(next(inputs()))
    assert equal(before, task.state())
    assert task.model[0].weight.grad is gradient
    assert isinstance(task.optimizer.param_groups[0]["lr"], float)
    task.step(next(inputs()))


def test_an_optimizer_that_reads_values_says_what_to_do() -> None:
    task = Task(lambda p: torch.optim.ASGD(p, lr=0.1))
    step = polyhal.torch.jit(task.step)
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
    step = polyhal.torch.jit(lambda x: task.model(x))
    x = next(inputs())
    step(x).sum().backward()
    with pytest.raises(CaptureError, match="from which gradients may still be computed"):
        step(x)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(step(x), task.model(x))


def test_ops_of_the_cpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")

    @torch.library.custom_op("polyhal_tests::doubled_on_cpu", mutates_args=(), device_types="cpu")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    step = polyhal.torch.jit(lambda x: doubled(x), warm_up=False)
    with pytest.raises(CaptureError, match="would run on the CPU"):
        step(torch.eye(3, device="polyhal"))


@pytest.mark.parametrize("kind", ["counter", "list", "state", "number"])
def test_what_a_replay_would_not_repeat_runs_eagerly_and_says_why(kind: str) -> None:
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
        polyhal.torch.jit(lambda x: x, warm_up=False)(np.zeros(3))


def test_arguments_that_need_gradients_are_refused() -> None:
    x = torch.ones(3, device="polyhal", requires_grad=True)
    with pytest.raises(CaptureError, match=r"x\.detach\(\)"):
        polyhal.torch.jit(lambda x: x * 2, warm_up=False)(x)


def test_tensors_filled_with_numbers_that_change() -> None:
    step = polyhal.torch.jit(lambda x, value: x + torch.full((3,), value, device="polyhal"), warm_up=False)
    for i in range(5):
        assert step(torch.zeros(3, device="polyhal"), i - 0.5).tolist() == [i - 0.5] * 3
    assert len(step.steps) == 1


@pytest.mark.parametrize("preserve", [True, False])
def test_recomputed_parts_may_not_ask_for_the_state_of_random_numbers(preserve: bool) -> None:
    class Recomputing(Task):
        def step(self, x: torch.Tensor) -> torch.Tensor:
            first, *rest = self.model
            hidden = checkpoint(lambda x: rest[0](first(x)), x, use_reentrant=False, preserve_rng_state=preserve)
            self.optimizer.zero_grad()
            loss = rest[1](hidden).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss

    def run(task: Task, step: Callable[..., Any]) -> None:
        task.seen += [step(x).item() for x in inputs(5)]

    if not preserve:
        both(run, Recomputing)
        return
    with pytest.raises(CaptureError, match="preserve_rng_state=False"):
        both(run, Recomputing)


def test_seeds_are_not_set_in_a_step() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return F.dropout(x)

    with pytest.raises(CaptureError, match="the seed of random numbers is set"):
        polyhal.torch.jit(step, warm_up=False)(torch.ones(3, device="polyhal"))


def test_what_the_step_refers_to_is_not_passed_as_well() -> None:
    task = Task()
    weight = task.model[0].weight

    @polyhal.torch.jit
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


def test_methods_may_be_recorded() -> None:
    class Scaled(Task):
        factor = 2.0

        @polyhal.torch.jit
        def step(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    first, second = Scaled(), Scaled()
    second.factor = 3.0
    for x in inputs():
        assert torch.equal(first.step(x), x * 2)
        assert torch.equal(second.step(x), x * 3)
    assert len(Scaled.step.steps) == 2
