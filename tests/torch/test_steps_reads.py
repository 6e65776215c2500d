"""Values that Python reads in the middle of a recorded step: each run checks them, before it has any effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from left_programs import CHECKED, DEVICE, Program, host
from recorded import inputs
from torch.nn import functional as F

import polyhal.torch

pytestmark = [pytest.mark.usefixtures("eager_variances"), pytest.mark.filterwarnings("error")]

Body = Callable[[Program, torch.Tensor], Any]


def _run(body: Body, wrap: Callable[..., Any], xs: list[torch.Tensor]) -> tuple[list[Any], Any]:
    """Return results and states after each step, and the step."""
    p = Program()
    step = wrap(lambda x: body(p, x))
    return [(host(step(x.to(DEVICE))), p.state()) for x in xs], step


def _recorded(body: Body, xs: list[torch.Tensor], **options: Any) -> Any:
    """Run a body eagerly and recorded; results and states must be equal after each step. Returns the recorded step."""
    eager, _ = _run(body, lambda f: f, xs)
    found, step = _run(body, lambda f: polyhal.torch.jit(f, **options), xs)
    differing = [i for i, (a, b) in enumerate(zip(eager, found, strict=True)) if a != b]
    assert differing == []
    return step


def _batches(count: int, *negative: int) -> list[torch.Tensor]:
    """Return positive batches, but for some."""
    return [-x.abs() if i in negative else x.abs() for i, x in enumerate(inputs(count, "cpu"))]


def _trains_if_positive(p: Program, x: torch.Tensor) -> Any:
    """State in place, random numbers of the device and of the CPU, an optimizer and a scheduler on both sides of the reads."""
    p.memory.add_(1)
    noise = torch.rand(4)
    hidden = p.model[:4](x + F.dropout(p.memory[:1], 0.5))
    logits = p.model[4:](hidden * noise.to(DEVICE))
    if not torch.isfinite(logits).all():
        return logits.detach()
    loss = F.cross_entropy(logits, torch.ones(5, dtype=torch.int64, device=DEVICE))
    if x.sum() > 0:
        p.optimizer.zero_grad()
        loss.backward()
        p.optimizer.step()
    p.memory.mul_(2)
    p.schedule.step()
    return loss.detach()


def test_a_run_on_another_path_has_no_effect(torch_device: str) -> None:
    step = _recorded(_trains_if_positive, _batches(14, 7, 8, 9, 12))
    assert len(step.steps) == 2
    assert step.eager_reasons == {}
    assert [s.missed for s in step.steps] == [0, 1]  # the last call follows the first path, after a run of the second


@pytest.mark.parametrize("body", CHECKED, ids=lambda f: f.__name__.strip("_"))
def test_programs_that_read_answers_are_recorded(body: Body, torch_on_numpy: str) -> None:
    step = _recorded(body, list(inputs(6)), warm_up=False, strict=True)
    assert len(step.steps) in (1, 2)


def test_tensors_from_outside_are_checked(torch_on_numpy: str) -> None:
    scale, is_on, count = torch.tensor([2.0, 0.0]).to(DEVICE), torch.ones(1, device=DEVICE), torch.tensor(3).to(DEVICE)

    @polyhal.torch.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        out = x * scale[0].item() if is_on else -x
        return out[: count.item()]

    x = torch.arange(4.0).to(DEVICE)
    for _ in range(4):
        assert step(x).tolist() == [0, 2, 4]
    assert len(step.steps) == 1
    scale.fill_(3)
    for _ in range(4):
        assert step(x).tolist() == [0, 3, 6]
    is_on.zero_()
    for _ in range(4):
        assert step(x).tolist() == [0, -1, -2]
    assert len(step.steps) == 3
    assert step.eager_reasons == {}


def test_a_scaler_that_skips_steps_is_recorded(torch_on_numpy: str) -> None:
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=3)

    def body(p: Program, x: torch.Tensor) -> Any:
        p.optimizer.zero_grad()
        scaler.scale(p.loss(x)).backward()
        scaler.step(p.optimizer)
        scaler.update()

    xs = list(inputs(12, "cpu"))
    xs[6] = xs[6] * torch.inf
    eager, _ = _run(body, lambda f: f, xs)
    scale = scaler.get_scale()
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=3)
    found, step = _run(body, polyhal.torch.jit, xs)
    assert found == eager
    assert scaler.get_scale() == scale
    assert [s.missed for s in step.steps] == [0]


def test_other_numbers_at_each_call_run_eagerly(torch_on_numpy: str) -> None:
    def body(p: Program, x: torch.Tensor) -> Any:
        p.train(loss := p.loss(x))
        p.log.append(loss.item())

    with pytest.warns(UserWarning, match="return the tensor and read it outside"):
        step = _recorded(body, _batches(6))
    assert step.steps == []


def test_a_scheduler_before_other_work_is_not_recorded_with_reads(torch_on_numpy: str) -> None:
    def body(p: Program, x: torch.Tensor) -> Any:
        loss = p.loss(x)
        if loss > 0:
            p.train(loss)
        p.schedule.step()
        p.optimizer.step()

    with pytest.warns(UserWarning, match=r"call scheduler\.step\(\) last"):
        assert _recorded(body, _batches(4)).steps == []
