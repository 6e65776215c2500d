"""Numbers and actions of the user's own that belong to each run of a captured step."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.device import Device
from polyhal.hal.errors import CaptureError


def test_a_number_is_computed_before_each_replay(device: Device) -> None:
    settings = {"noise": 0.0}

    @ph.jit(warm_up=False)
    def noisy(x: ph.Tensor) -> ph.Tensor:
        return x + 2 * ph.runtime_scalar(lambda: settings["noise"], "noise")

    x = ph.ones((3,), device=device)
    for settings["noise"] in (0.0, 1.0, 2.5, 4.0):
        np.testing.assert_array_equal(noisy(x).numpy(), 1 + 2 * settings["noise"])
    assert any("noise" in name for name in noisy.graphs[0].names.values())


def test_an_action_runs_once_for_each_call(numpy_device: Device) -> None:
    count: list[int] = []

    @ph.jit
    def step(x: ph.Tensor) -> ph.Tensor:
        ph.on_replay(lambda: count.append(len(count)))
        return x * ph.runtime_scalar(lambda: float(len(count)))

    x = ph.ones((2,), device=numpy_device)
    results = [step(x).tolist()[0] for _ in range(5)]
    assert count == [0, 1, 2, 3, 4]
    assert results == [1, 2, 3, 4, 5]


def test_outside_of_a_captured_step_both_act_at_once() -> None:
    done: list[int] = []
    ph.on_replay(lambda: done.append(1))
    assert done == [1]
    assert ph.runtime_scalar(lambda: 3) == 3


def test_a_comparison_is_refused_in_a_captured_step(numpy_device: Device) -> None:
    @ph.jit(warm_up=False)
    def step(x: ph.Tensor) -> ph.Tensor:
        return x if ph.runtime_scalar(lambda: 1.0) > 0 else -x

    with pytest.raises(CaptureError, match="a number that changes from run to run"):
        step(ph.ones((2,), device=numpy_device))
