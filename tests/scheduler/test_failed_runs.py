"""A captured step or an optimizer step that fails can be repeated: it leaves no partial state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.backends.sim.backend import create
from polyhal.hal.device import Device
from polyhal.hal.errors import KernelBuildError, OutOfMemoryError

from .worker_devices import executable_of


@pytest.fixture
def sim() -> Device:
    return Device.opened("sim", create("teaching,memory=64MiB"))


def backend_of(device: Device) -> Any:
    return device.backend


def test_a_replay_that_runs_out_of_memory_can_be_repeated(sim: Device) -> None:
    """Results that were reallocated before the failure must be rebound in recorded launches in the next run."""
    step = ph.jit(lambda x: (x + 1, x * 2), warm_up=False)
    x = ph.tensor(np.arange(6, dtype=np.float32), device=sim)
    held = [step(x) for _ in range(4)]
    faults = backend_of(sim).faults
    sim.empty_cache()
    number = backend_of(sim).allocations
    for at in (number + 2, number + 3):  # the second result, including the pool's second attempt
        faults.inject("allocation_failure", at=at)
    with pytest.raises(OutOfMemoryError):
        step(x)
    y = ph.tensor(np.full(6, 7, np.float32), device=sim)
    a, b = step(y)
    assert a.tolist() == [8] * 6
    assert b.tolist() == [14] * 6
    assert all(first.tolist() == [1, 2, 3, 4, 5, 6] for first, _ in held)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.AdamW(p, lr=0.1),
        lambda p: optim.NAdam(p, lr=0.1),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    ],
)
def test_a_step_whose_kernel_did_not_build_is_not_counted(
    make: Any, sim: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_STRICT", "1")
    weights = []
    for fails in (False, True):
        device = Device.opened("sim", create("teaching,memory=64MiB"))
        ph.manual_seed(0)
        model = nn.Linear(4, 3).to(device)
        optimizer = make(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            (model(ph.ones((2, 4), device=device)) ** 2).sum().backward()
            if fails:
                backend_of(device).faults.inject("build_failure", name="*_step")
                with pytest.raises(KernelBuildError) as caught:
                    optimizer.step()
                assert "it can be repeated" in caught.value.__notes__[0]
                fails = False
            optimizer.step()
        weights.append(model.weight.numpy())
    assert np.array_equal(*weights)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.AdamW(p, lr=0.1),
        lambda p: optim.NAdam(p, lr=0.1),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
        lambda p: optim.Muon(p, lr=0.1),
    ],
)
def test_a_captured_step_that_failed_midway_is_not_counted(make: Any) -> None:
    """A launch before the update fails once; the repeated step is bitwise identical to a run without the fault."""
    ended = []
    for fails in (False, True):
        device = Device("numpy")
        ph.manual_seed(0)
        model = nn.Linear(4, 3, bias=False).to(device)
        optimizer = make(model.parameters())
        schedule = optim.lr_scheduler.StepLR(optimizer, 2)

        def step(x: ph.Tensor, model: Any = model, optimizer: Any = optimizer, schedule: Any = schedule) -> ph.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        captured = ph.jit(step)
        x = ph.ones((2, 4), device=device)
        for _ in range(3):
            captured(x)
        if fails:
            executable = executable_of(captured)
            actions = list(executable._actions)
            executable._actions[0] = _fail
            before = optimizer.state_dict()["state"], schedule.last_epoch
            with pytest.raises(ZeroDivisionError) as caught:
                captured(x)
            assert "raised by the backend numpy of the package polyhal" in caught.value.__notes__[0]
            assert "in [captured step: " in caught.value.__notes__[0]
            after = optimizer.state_dict()["state"], schedule.last_epoch
            assert [{k: v for k, v in s.items() if k in ("step", "mu_product")} for s in before[0].values()] == [
                {k: v for k, v in s.items() if k in ("step", "mu_product")} for s in after[0].values()
            ]
            assert before[1] == after[1]
            executable._actions[:] = actions
        captured(x)
        captured(x)
        ended.append((model.weight.numpy(), optimizer.param_groups[0]["lr"]))
    assert np.array_equal(ended[0][0], ended[1][0])
    assert ended[0][1] == ended[1][1]


def _fail() -> None:
    raise ZeroDivisionError("a fault")


def test_errors_of_memory_name_the_op(sim: Device) -> None:
    x = ph.ones((100, 100), device=sim)
    faults = backend_of(sim).faults
    sim.empty_cache()
    faults.inject("allocation_failure", times=None)
    for op, use in {
        "add": lambda: x + 1,
        "copy to device": lambda: ph.tensor(np.ones(1000, np.float32), device=sim),
        "captured step": lambda: ph.jit(lambda a: a.exp().sum(), warm_up=False)(x),
    }.items():
        with pytest.raises(OutOfMemoryError, match=rf"^\[{op}\] no memory for .* \(on sim\)$"):
            use()
