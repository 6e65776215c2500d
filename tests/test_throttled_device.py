"""The device that benchmarks and tests slow down: the same results, in a multiple of the time."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal as ph
from benchmarks.throttled import throttled
from polyhal import nn, optim
from polyhal.hal.device import Device
from polyhal.hal.system.discovery.registry import registry
from polyhal.nn import functional as F

OPENCL = ["opencl"] if registry().probe("opencl") else []
NAMES = ["numpy", "numpy:contiguous_only", "sim", *OPENCL]


def _trained(device: Device, captured: bool) -> list[np.ndarray]:
    """Parameters after a few steps, on which work in place has acted: sums of gradients, moments, and a running mean."""
    ph.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 4)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    counter = ph.zeros((3,), device=device)

    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        counter.add_(1.0)
        return loss

    run = ph.jit(step) if captured else step
    rng = np.random.default_rng(1)
    for _ in range(3):
        for _ in range(2):  # accumulated
            x = ph.tensor(rng.standard_normal((16, 6)).astype(np.float32), device=device)
            run(x, ph.tensor(rng.integers(0, 4, 16), device=device))
        optimizer.step()
        optimizer.zero_grad()
    np.testing.assert_array_equal(counter.numpy(), 6.0)
    return [p.numpy() for p in (*model.parameters(), *model.buffers())]


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_the_same_bit_for_bit(name: str, captured: bool) -> None:
    slow = throttled(name, 3)
    assert slow.features == Device(name).features
    for got, expected in zip(_trained(slow, captured), _trained(Device(name), captured), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_every_launch_takes_a_multiple_of_its_time() -> None:
    """By the clock of the simulated device, which depends on nothing else."""
    durations = []
    for device in (Device("sim"), throttled("sim", 4)):
        x = ph.ones((64, 64), device=device)
        device.backend.start_profiling()  # type: ignore[attr-defined]
        ((x @ x).relu() + 1).sum().item()
        durations.append([end - start for _, start, end in device.backend.stop_profiling()])  # type: ignore[attr-defined]
    plain, slow = durations
    assert len(slow) == 4 * len(plain) > 0
    assert sum(slow) == pytest.approx(4 * sum(plain), rel=1e-6)


@pytest.mark.parametrize("name", ["numpy", *OPENCL])
def test_strided_outputs_keep_their_layout(name: str) -> None:
    """Also tensors whose elements precede their offset."""
    slow = throttled(name, 2)
    x = ph.zeros((4, 5), device=slow)
    x[::-1, 1::2] = ph.tensor(np.arange(8, dtype=np.float32).reshape(4, 2), device=slow)
    expected = np.zeros((4, 5), np.float32)
    expected[::-1, 1::2] = np.arange(8).reshape(4, 2)
    np.testing.assert_array_equal(x.numpy(), expected)
