"""Steps, recorded or not, leave nothing behind: the short form of `python -m benchmarks.torch_soak`."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch

import polyhal
import polyhal.torch
from benchmarks.torch_soak import soak
from polyhal.torch.steps.record import PendingStep
from polyhal.torch.steps.watch import StepWatch

pytestmark = pytest.mark.usefixtures("torch_on_numpy")


@pytest.mark.parametrize("recorded", [False, True])
def test_steps_do_not_grow(recorded: bool) -> None:
    row = soak(polyhal.get_default_device(), recorded, 45, times=3)
    assert row["findings"] == []


def test_a_dropped_step_releases_its_memory() -> None:
    device = polyhal.get_default_device()
    gc.collect()
    before = device.memory_stats().used
    parts = [torch.nn.Linear(64, 64).to("polyhal")]
    x = torch.ones(32, 64, device="polyhal")

    def step(x: torch.Tensor) -> torch.Tensor:
        parts[0].zero_grad()
        loss = parts[0](x).square().mean()
        loss.backward()
        return loss

    recorded = polyhal.torch.jit(step, strict=True)
    for _ in range(4):
        recorded(x)
    assert len(recorded.steps) == 1
    program = weakref.ref(recorded.steps[0])
    del recorded, step, x
    parts.clear()
    gc.collect()
    assert program() is None
    assert device.memory_stats().used == before


@pytest.mark.parametrize("reads", [False, True])
def test_steps_do_not_keep_their_recordings(reads: bool) -> None:
    weight = torch.ones(3, device="polyhal", requires_grad=True)

    def body(x: torch.Tensor) -> torch.Tensor | float:
        weight.grad = None
        (x * weight).sum().backward()
        return x.sum().item() if reads else weight.grad * 2

    step = polyhal.torch.jit(body, warm_up=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            step(torch.ones(3, device="polyhal"))
    gc.collect()
    assert len(step.steps) == (not reads)
    assert not [x for x in gc.get_objects() if isinstance(x, (PendingStep, StepWatch))]
