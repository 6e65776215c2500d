"""Steps with operations that cannot be recorded run with the results and the effects of eager calls, bit for bit."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from left_programs import DEVICE, PROGRAMS, Program, host
from recorded import inputs

import polyhal.torch
from polyhal.hal.errors import CaptureError
from polyhal.torch.steps.answers import is_recording

pytestmark = [pytest.mark.usefixtures("torch_on_numpy"), pytest.mark.filterwarnings("error")]


def _run(body: Callable[..., Any], wrap: Callable[..., Any], *make: Any, count: int = 5) -> tuple[list[Any], Any]:
    """Return results and states of `count` steps of a new program, and the step. `body` takes the program and an input."""
    p = Program(*make)
    step = wrap(lambda *args: body(p, *args))
    return [(_outcome(step, x), p.state()) for x in inputs(count)], step


def _outcome(step: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return host(step(x))
    except ValueError as error:
        return str(error)


def _compared(body: Callable[..., Any], *make: Any, count: int = 5, **options: Any) -> Any:
    """Run a body eagerly and under `jit`; results and states must be equal after each step. Returns the step."""
    eager, _ = _run(body, lambda f: f, *make, count=count)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found, step = _run(body, lambda f: polyhal.torch.jit(f, **options), *make, count=count)
    for i, (a, b) in enumerate(zip(eager, found, strict=True)):
        assert a == b, f"step {i}"
    (sentence,) = [str(w.message) for w in caught if "runs eagerly" in str(w.message)]
    assert next(iter(step.eager_reasons)) in sentence
    assert next(iter(step.eager_reasons)) in step.explain()
    return step


@pytest.mark.parametrize("body", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("warm_up", [True, False], ids=["warm", "cold"])
def test_steps_that_cannot_be_recorded_equal_eager_ones(body: Callable[..., Any], warm_up: bool) -> None:
    _compared(body, warm_up=warm_up)


@pytest.mark.parametrize("name", ["ASGD", "LBFGS"])
def test_optimizers_that_read_values_run(name: str) -> None:
    def body(p: Program, x: torch.Tensor) -> Any:
        def closure() -> torch.Tensor:
            p.optimizer.zero_grad()
            loss = p.loss(x)
            loss.backward()
            return loss

        return p.optimizer.step(closure)

    step = _compared(body, lambda params: getattr(torch.optim, name)(params, lr=0.01))
    assert "outside of the step" in step.explain()


def test_results_may_still_be_differentiated() -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        p = Program()
        step = wrap(p.loss)
        for x in inputs(4):
            p.train(step(x))
        return p.state()

    eager = run(lambda f: f)
    with pytest.warns(UserWarning, match=r"call backward\(\) inside"):
        assert run(polyhal.torch.jit) == eager


def test_arguments_may_need_gradients_or_be_arrays() -> None:
    step = polyhal.torch.jit(lambda x, y: (x * torch.as_tensor(y).to(DEVICE)).sum(), warm_up=False)
    x = torch.full((2,), 3.0, device=DEVICE, requires_grad=True)
    with pytest.warns(UserWarning, match=r"x\.detach\(\)"):
        total = step(x, np.arange(2.0, dtype=np.float32))
    for _ in range(2):
        total = total + step(x, np.arange(2.0, dtype=np.float32))
    total.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 3]
    assert step(x.detach(), np.ones(2, np.float32)).item() == 6
    assert "from_numpy" in step.explain()


def test_arguments_may_be_what_the_step_refers_to() -> None:
    weight = torch.ones(3, device=DEVICE)
    step = polyhal.torch.jit(lambda x: x + weight.mul_(2))
    with pytest.warns(UserWarning, match="pass a clone"):
        found = [step(weight).tolist() for _ in range(3)]
    assert found == [[4] * 3, [8] * 3, [16] * 3]


def test_ops_of_the_cpu_run_between_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")

    @torch.library.custom_op("polyhal_tests::tripled_on_cpu", mutates_args=(), device_types="cpu")
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    _compared(lambda p, x: p.log.append(tripled(x + 1) * 2))


def _rolls_back(p: Program, x: torch.Tensor) -> Any:
    """An error that only a recording raises, after it has changed state."""
    weight = p.model[0].weight
    weight.data = weight.data * 0.5
    weight.requires_grad_(not weight.requires_grad)
    p.model[4].calls = getattr(p.model[4], "calls", 0) + 1
    p.model[1].extra = p.model(x).detach()
    p.log.append(p.model[1].extra)
    p.train(loss := p.loss(x))
    p.log.append(p.model[4].calls)
    if torch.polyhal.is_current_stream_capturing():
        raise RuntimeError("not while it is captured")
    return loss.detach()


def test_recordings_are_rolled_back() -> None:
    assert "RuntimeError (not while it is captured)" in _compared(_rolls_back).explain()


@pytest.mark.parametrize("is_early", [True, False])
def test_errors_of_the_program_are_raised_as_eagerly(is_early: bool) -> None:
    def body(p: Program, x: torch.Tensor) -> Any:
        p.train(loss := p.loss(x))
        p.log.append(1 if is_early else loss.item())
        if len(p.log) in (2, 4, 7):
            raise ValueError(f"call {len(p.log)}")
        return bool(loss > 0)

    _compared(body, count=8)


def test_an_error_that_only_a_recording_raises_is_no_error() -> None:
    def body(p: Program, x: torch.Tensor) -> Any:
        p.train(p.loss(x))
        if torch.polyhal.is_current_stream_capturing():
            raise RuntimeError("not while it is captured")

    assert "RuntimeError (not while it is captured)" in _compared(body).explain()


def test_steps_of_other_signatures_are_kept() -> None:
    def run(wrap: Callable[..., Any]) -> tuple[list[Any], Any]:
        p = Program()

        def body(x: torch.Tensor, is_logged: bool) -> None:
            p.train(loss := p.loss(x))
            if is_logged:
                p.log.append(loss.item())

        step = wrap(body)
        for i, x in enumerate(inputs(12)):
            step(x, i % 4 == 3)
        return p.state(), step

    with pytest.warns(UserWarning, match="return the tensor and read it outside") as caught:
        found, step = run(polyhal.torch.jit)
    assert found == run(lambda f: f)[0]
    assert len(caught) == 1
    assert len(step.steps) == 1


def test_the_reasons_are_reported() -> None:
    polyhal.torch.reset_report()
    step = polyhal.torch.jit(lambda x: x.sum().item())
    for shape in (2, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                step(torch.rand(shape).to(DEVICE))
    (reason,) = step.eager_reasons
    assert "needs the value of a tensor" in reason
    assert "test_steps_left.py" in reason
    assert f"ran eagerly: {reason}" in str(polyhal.torch.report())


def test_many_signatures_that_cannot_be_recorded_are_not_tried() -> None:
    tried = []
    step = polyhal.torch.jit(lambda x: (tried.append(is_recording()), x.sum().item())[1], max_graphs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(8):
            assert step(torch.ones(n, device=DEVICE)) == n
    assert (
        tried.count(True) == 4
    )  # of two signatures, and twice because a number may stay the same from the next call on


def test_numbers_scale_gradients_at_each_run() -> None:
    weight = torch.ones(3, device=DEVICE, requires_grad=True)

    @polyhal.torch.jit(warm_up=False)
    def step(x: torch.Tensor, scale: float) -> torch.Tensor:
        weight.grad = None
        ((x * weight).sum() * scale - (x / scale * weight).sum()).backward()
        return weight.grad.clone()

    for i in range(1, 6):
        gradient = step(torch.ones(3, device=DEVICE), float(i))
        assert gradient.tolist() == pytest.approx([i - 1 / i] * 3, rel=1e-6)  # in float32
    assert len(step.steps) == 1


def test_tensors_are_sent_with_the_elements_that_they_have_at_that_point() -> None:
    @polyhal.torch.jit
    def step(x: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        counts = start * 1
        first = counts.to(DEVICE)
        counts.add_(1)
        second = counts.to(DEVICE)
        counts.zero_()
        return x + first, x * second

    for i in range(5):
        a, b = step(torch.ones(2, device=DEVICE), torch.full((2,), float(i)))
        assert (a[0].item(), b[1].item()) == (i + 1, i + 1)
    assert len(step.steps) == 1


def test_threads_that_record_at_once_leave_schedulers_as_they_were() -> None:
    before = {
        k: vars(k)["step"]
        for k in (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ExponentialLR)
        if "step" in vars(k)
    }
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    programs = [Program(), Program(), Program()]

    def body(p: Program, x: torch.Tensor, enter: Callable[[], Any]) -> None:
        p.train(p.loss(x))
        enter()
        p.schedule.step()

    def enter_first() -> None:
        first_is_in.set()
        second_is_in.wait(60)

    def enter_second() -> None:
        second_is_in.set()
        first_is_out.wait(60)

    def run(p: Program, enter: Callable[[], Any], leave: Callable[[], Any]) -> None:
        step = polyhal.torch.jit(lambda x: body(p, x, enter), warm_up=False)
        step(next(inputs()))
        leave()

    threads = [
        threading.Thread(target=run, args=(programs[0], enter_first, first_is_out.set)),
        threading.Thread(target=run, args=(programs[1], enter_second, lambda: None)),
    ]
    threads[0].start()
    first_is_in.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    body(programs[2], next(inputs()), lambda: None)
    assert {k: vars(k)["step"] for k in before} == before
    for p in programs:
        assert p.schedule.last_epoch == 1
        assert p.optimizer.param_groups[0]["lr"] == programs[2].optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("is_finite", [True, False])
def test_loss_scalers_skip_steps(is_finite: bool) -> None:
    def body(p: Any, x: torch.Tensor) -> Any:
        if not hasattr(p, "scaler"):
            p.scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=2)
        loss = p.loss(x if is_finite else x / 0)
        p.optimizer.zero_grad()
        p.scaler.scale(loss).backward()
        p.scaler.step(p.optimizer)
        p.scaler.update()
        p.log.append(p.scaler.get_scale())

    _compared(body)


@pytest.mark.parametrize(
    "body",
    [
        lambda p, x: x.view(torch.int32) + 1,
        lambda p, x: (x * 2).view(torch.int16)[:, 2:4] + 1,
        lambda p, x: [p.memory.view(torch.int32) + 1, p.memory.add_(x[0]), p.memory.view(torch.int32) + 1],
        lambda p, x: [p.memory.view(torch.int32)[1:2].fill_(5), p.memory + x[:4]],
        lambda p, x: [y := x * 1, y.view(torch.int32)[0].zero_()],
    ],
)
def test_memory_of_other_dtypes_runs_eagerly(body: Callable[..., Any]) -> None:
    """No op of a graph reads the bytes of numbers as those of other numbers."""
    _compared(body)
    with pytest.raises(CaptureError, match=r"of another dtype|that overlaps it in memory"):
        _run(body, lambda f: polyhal.torch.jit(f, strict=True))


def test_memory_from_outside_is_read_as_other_dtypes() -> None:
    bits = torch.randn(4, device=DEVICE)
    step = polyhal.torch.jit(lambda x: x + bits.view(torch.int32) + bits.view(torch.int16)[::2], warm_up=False)
    for i in range(4):
        bits.mul_(-2)
        x = torch.full((4,), i, device=DEVICE)
        assert torch.equal(step(x), x + bits.view(torch.int32) + bits.view(torch.int16)[::2])
    assert len(step.steps) == 1
