"""Learning-rate schedules against PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import polyhal as ph
from polyhal import optim

CASES: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("constant", lambda m, o: m.ConstantLR(o, 0.25, 4)),
    ("step", lambda m, o: m.StepLR(o, 3, 0.5)),
    ("linear", lambda m, o: m.LinearLR(o, 0.1, 0.8, 6)),
    ("cosine", lambda m, o: m.CosineAnnealingLR(o, 7, 0.01)),
    ("lambda", lambda m, o: m.LambdaLR(o, lambda t: 1 / (t + 1))),
    ("lambdas", lambda m, o: m.LambdaLR(o, [lambda t: 0.9**t, lambda t: 0.5])),
    (
        "sequence",
        lambda m, o: m.SequentialLR(
            o, [m.ConstantLR(o, 0.5, 2), m.StepLR(o, 2, 0.1), m.LinearLR(o, 0.3, 1, 3)], [3, 8]
        ),
    ),
    ("exponential", lambda m, o: m.ExponentialLR(o, 0.9)),
    ("milestones", lambda m, o: m.MultiStepLR(o, [3, 9, 5], 0.3)),
    ("polynomial", lambda m, o: m.PolynomialLR(o, 8, 2.0)),
    ("multiplicative", lambda m, o: m.MultiplicativeLR(o, lambda t: 1 - 0.05 * t)),
    ("cyclic", lambda m, o: m.CyclicLR(o, 0.1, 0.6, 3, 4, cycle_momentum=False)),
    ("cyclic, halved", lambda m, o: m.CyclicLR(o, 0.1, 0.6, 2, mode="triangular2", cycle_momentum=False)),
    ("cyclic, shrinking", lambda m, o: m.CyclicLR(o, [0.1, 0.2], 0.6, 2, 3, "exp_range", 0.9, cycle_momentum=False)),
    ("one cycle", lambda m, o: m.OneCycleLR(o, [0.5, 1.0], 20, cycle_momentum=False)),
    (
        "one cycle in three phases",
        lambda m, o: m.OneCycleLR(
            o, 0.5, epochs=3, steps_per_epoch=7, anneal_strategy="linear", three_phase=True, cycle_momentum=False
        ),
    ),
    ("restarts", lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, 0.05)),
    ("chain", lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.5, 4), m.ExponentialLR(o, 0.9)])),
]


def optimizers() -> tuple[optim.SGD, torch.optim.SGD]:
    ours = [ph.zeros((1,), device="numpy", requires_grad=True) for _ in range(2)]
    theirs = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    a = optim.SGD([{"params": ours[:1]}, {"params": ours[1:], "lr": 3.0}], lr=0.4)
    b = torch.optim.SGD([{"params": theirs[:1]}, {"params": theirs[1:], "lr": 3.0}], lr=0.4)
    return a, b


@pytest.mark.parametrize(("name", "make"), CASES)
@pytest.mark.filterwarnings("ignore:The epoch parameter in")
def test_against_pytorch(name: str, make: Callable[[Any, Any], Any]) -> None:
    a, b = optimizers()
    ours, theirs = make(optim, a), make(torch.optim.lr_scheduler, b)
    for step in range(20):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-6, abs=1e-9), f"{name}, step {step}"
        a.step()
        b.step()
        ours.step()
        theirs.step()
    assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-6, abs=1e-9), f"{name}, last step"


@pytest.mark.parametrize(("name", "make"), CASES)
def test_resume(name: str, make: Callable[[Any, Any], Any]) -> None:
    a, _ = optimizers()
    whole = make(optim, a)
    for _ in range(4):
        whole.step()
    state = whole.state_dict()
    assert all(not callable(v) for v in state.values())
    c, _ = optimizers()
    resumed = make(optim, c)
    resumed.load_state_dict(state)
    assert resumed.get_last_lr() == whole.get_last_lr()
    for _ in range(6):
        whole.step()
        resumed.step()
        assert resumed.get_last_lr() == whole.get_last_lr()


def test_warmup_cosine() -> None:
    a, _ = optimizers()
    schedule = optim.WarmupCosine(a, 4, 12, min_lr=0.04)
    rates = []
    for _ in range(15):
        rates.append(schedule.get_last_lr()[0])
        schedule.step()
    assert rates[:4] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert rates[4] == pytest.approx(0.4)
    assert rates[8] == pytest.approx(0.04 + 0.36 * (1 + math.cos(math.pi / 2)) / 2)
    assert rates[12:] == pytest.approx([0.04] * 3)
    with pytest.raises(ValueError, match="5 warm-up steps of 4"):
        optim.WarmupCosine(a, 5, 4)


def test_refused_arguments() -> None:
    a, _ = optimizers()
    with pytest.raises(ValueError, match="1 functions for 2 parameter groups"):
        optim.LambdaLR(a, [lambda t: 1.0])
    with pytest.raises(ValueError, match="milestones"):
        optim.SequentialLR(a, [optim.StepLR(a, 1)], [3])
    with pytest.raises(ValueError, match="belong to the optimizer"):
        optim.SequentialLR(a, [optim.StepLR(optimizers()[0], 1)], [])


@pytest.mark.parametrize("make", [lambda m, o: m.CyclicLR(o, 0.1, 0.6, 3, 2), lambda m, o: m.OneCycleLR(o, 0.5, 21)])
def test_momentum_goes_against_the_rate(make: Callable[[Any, Any], Any]) -> None:
    tensors = [ph.zeros((1,), device="numpy", requires_grad=True)], [torch.zeros(1, requires_grad=True)]
    for names in ("SGD", "Adam"):
        settings = {"momentum": 0.9} if names == "SGD" else {}
        a = getattr(optim, names)(tensors[0], lr=0.1, **settings)
        b = getattr(torch.optim, names)(tensors[1], lr=0.1, **settings)
        ours, theirs = make(optim, a), make(torch.optim.lr_scheduler, b)
        for _ in range(20):
            mine, expected = (g.get("momentum", g.get("betas")) for g in (a.param_groups[0], b.param_groups[0]))
            assert mine == pytest.approx(expected)
            for x in (b, ours, theirs):
                x.step()


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "max", "threshold_mode": "abs", "threshold": 0.1, "cooldown": 2, "min_lr": 0.02}]
)
def test_plateaus(settings: dict[str, Any]) -> None:
    a, b = optimizers()
    ours = optim.ReduceLROnPlateau(a, factor=0.5, patience=2, **settings)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(b, factor=0.5, patience=2, **settings)
    for value in [1.0, 0.9, 0.95, 0.95, 0.95, 0.95, 0.8, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 2.0, 2.0, 2.0]:
        ours.step(ph.tensor(value, device="numpy"))
        theirs.step(value)
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr())


def test_continuing_needs_the_first_rates() -> None:
    a, _ = optimizers()
    with pytest.raises(KeyError, match="initial_lr"):
        optim.StepLR(a, 3, last_epoch=4)


def test_one_cycle_ends_after_as_many_steps_as_it_was_given() -> None:
    schedule = optim.OneCycleLR(optimizers()[0], 0.5, 3, cycle_momentum=False)
    for _ in range(3):
        schedule.step()
    with pytest.raises(ValueError, match="at most total_steps calls"):
        schedule.step()
