"""Recurrent layers by the kernels of each kind of device, on any available device."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import check

from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c.lowering.recurrent import resident_steps, resident_tiles, steps
from polyhal.backends.opencl_c.lowering.recurrent.problem import LayerSteps
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS

pytestmark = pytest.mark.slow


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU with four compute units."""
    runtime = device.backend.runtime
    most = min(runtime.features.max_group_size, 64)
    found = as_gpu(runtime.features, group_size=most, max_group_size=most, vector_width=4, compute_units=4)
    monkeypatch.setattr(runtime, "features", found)
    return device


def check_layers(device: Any, rng: Any, steps: int, batch: int, size: int, reverse: bool) -> None:
    """Compare LSTM and GRU layers and their gradients with the reference."""

    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    floor = {"magnitude": 4.0, "ulps": 64}
    states = draw(batch, size), draw(batch, size)
    weight = draw(4 * size, size) / size
    inputs = [draw(steps, batch, 4 * size), weight, *states, None, None]
    for keep in (False, True):
        check(device, "lstm", inputs, **floor, reverse=reverse, keep_gates=keep)
    grads = draw(steps, batch, size), draw(steps, batch, size)
    inputs = [*grads, draw(steps, batch, 4 * size), weight, states[0], draw(steps, batch, size)]
    check(device, "lstm_steps_grad", inputs, **floor, reverse=reverse)
    weight, bias, x = draw(3 * size, size) / size, draw(3 * size), draw(steps, batch, 3 * size)
    for some in (bias, None):
        check(device, "gru", [x, weight, states[0], some, None], **floor, reverse=reverse)
    outs = OPS["gru"].reference(x, weight, states[0], bias, reverse=reverse)
    inputs = [grads[0], x, draw(steps, batch, 3 * size), weight, states[0], outs]
    check(device, "gru_steps_grad", inputs, **floor, reverse=reverse)


# Units in one slice, in several, and in several rounds; sequences one by one and in pairs, with an incomplete pair.
@pytest.mark.parametrize(("batch", "size"), [(3, 20), (7, 9), (2, 70)], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_all_steps_in_one_launch(gpu: Any, rng: Any, batch: int, size: int, reverse: bool) -> None:
    check_layers(gpu, rng, 3, batch, size, reverse)


# One group has the whole layer, because other devices do not guarantee progress of groups that wait for each other.
@pytest.mark.parametrize(("batch", "size"), [(3, 20), (9, 32)], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_weight_in_registers(
    gpu: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, batch: int, size: int, reverse: bool
) -> None:
    runtime = gpu.backend.runtime
    facts = replace(runtime.features, compute_capability=10, compute_units=8, max_group_size=1024)
    monkeypatch.setattr(runtime, "features", facts)
    monkeypatch.setattr(resident_steps, "_MIN_SIZE", 1)
    assert facts.resident_groups
    check_layers(gpu, rng, 3, batch, size, reverse)


def test_groups_that_wait_for_each_other_are_all_resident(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = gpu.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, compute_capability=90, compute_units=132))
    for batch, size in [(32, 256), (1, 512), (64, 200), (5, 97), (128, 96), (4, 400)]:
        weight = contiguous(dtypes.float32, (4 * size, size))
        problem = LayerSteps("LSTM", {"weight": (1, weight)}, 8, batch, size, False)
        for gradient in (False, True):
            division = resident_steps.shares(runtime, problem, gradient=gradient)
            if division is not None:
                assert division.shares * -(-batch // division.rows) <= 132
                assert division.shares * division.units >= size
                assert division.slices * division.terms >= size * (4 if gradient else 1)


def test_groups_that_keep_the_weight_in_local_memory_cover_the_layer(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = gpu.backend.runtime
    hopper = replace(
        runtime.features, compute_capability=90, compute_units=132, max_group_size=1024, static_local_memory=200 << 10
    )
    monkeypatch.setattr(runtime, "features", hopper)
    for batch, size in [(128, 1024), (256, 1024), (16, 512), (500, 512), (33, 640), (250, 832)]:
        for cell, gates in (("LSTM", 4), ("GRU", 3)):
            weight = contiguous(dtypes.float32, (gates * size, size))
            problem = LayerSteps(cell, {"weight": (1, weight)}, 8, batch, size, False)
            for gradient in (False, True):
                division = resident_tiles.tiles(runtime, problem, gradient=gradient)
                assert division is not None
                assert division.shares * division.clusters <= 132
                assert division.shares * (32 if gradient else 8 * gates) == size * gates
                assert batch <= division.rows
    for batch, size in [(128, 1088), (128, 1000), (8, 1024), (300, 1024)]:
        weight = contiguous(dtypes.float32, (4 * size, size))
        problem = LayerSteps("LSTM", {"weight": (1, weight)}, 8, batch, size, False)
        assert resident_tiles.tiles(runtime, problem, gradient=False) is None


def test_weight_in_local_memory(found: Any) -> None:
    """Run in a separate process in which PoCL has a thread for every group, because the groups wait for each other."""
    if "Portable" not in found.platform:
        pytest.skip("no other driver is known to run that many groups at a time")
    environment = {**os.environ, "POCL_MAX_PTHREAD_COUNT": "16", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, found.info.selector]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _check_groups_that_wait(selector: str) -> None:
    """Compare layers of 64 units with the reference: one tile of 64 sequences, and two partial tiles of 128."""
    (found,) = [f for f in discovery.devices() if f.info.selector == selector]
    device, rng = Harness(OpenCLBackend(found), partial(OpenCLBackend, found)), np.random.default_rng(20)
    runtime = device.backend.runtime  # type: ignore[attr-defined]
    runtime.features = as_gpu(
        runtime.features,
        compute_capability=10,
        compute_units=8,
        max_group_size=1024,
        static_local_memory=1 << 20,
    )
    resident_steps._MIN_SIZE, steps._MAX_SIZE = 1 << 30, 0
    launched: list[str] = []
    launch = resident_tiles._launch
    resident_tiles._launch = lambda *args: launched.append(args[1]) or launch(*args)  # type: ignore[func-returns-value]
    for batch, reverse in ((20, True), (150, False)):
        check_layers(device, rng, 3, batch, 64, reverse)
    assert len(launched) == 12, launched


# Terms in one pass and in several, full tiles and a partial one.
@pytest.mark.parametrize(("batch", "size"), [(1, 70), (27, 70), (110, 5)], ids=str)
def test_weight_in_parts(device: Any, rng: Any, batch: int, size: int) -> None:
    check_layers(device, rng, 2, batch, size, True)


def test_sums_of_bags_on_a_gpu(gpu: Any, rng: Any) -> None:
    index = rng.integers(0, 9, 40)
    for width in (64, 30, 7):
        weight = rng.uniform(-1, 1, (9, width))
        starts = np.array([0, 0, 5, 33, 40])
        check(gpu, "sum_bags", [weight, index, starts, None], magnitude=40.0, length=0, open_end=True)
        check(gpu, "sum_bags", [weight, index, None, rng.uniform(-1, 1, 40)], magnitude=40.0, length=8, open_end=False)


if __name__ == "__main__":
    _check_groups_that_wait(sys.argv[1])
