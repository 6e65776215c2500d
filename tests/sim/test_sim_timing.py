"""Virtual time: engines, the roofline of the teaching GPU, and equal times and bits in each run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import OpenSim, sim_of

import polyhal
from polyhal import nn, optim
from polyhal.backends.sim.clock import VirtualClock
from polyhal.backends.sim.costs import touched_bytes
from polyhal.backends.sim.timing import Engine, KernelCost, kernel_ns, local_copy_ns, transfer_ns
from polyhal.hal import dtypes
from polyhal.hal.core.hardware.profile import load_profile, profile_names
from polyhal.hal.device import Device
from polyhal.hal.layout import Spec, contiguous


def test_work_takes_the_first_gap_that_is_long_enough() -> None:
    engine = Engine("compute")
    assert engine.reserve(100, 50, 0) == 100
    assert engine.reserve(0, 40, 0) == 0
    assert engine.reserve(0, 70, 0) == 150, "60 are free between 40 and 100"
    assert engine.reserve(0, 60, 0) == 40
    assert engine.reserve(0, 10, 0) == 220


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), max_size=30))
def test_an_engine_runs_one_command_at_a_time(work: list[tuple[int, int]]) -> None:
    engine = Engine("compute")
    spans = sorted((start, start + n) for ready, n in work for start in [engine.reserve(ready, n, 0)] if start >= ready)
    assert len(spans) == len(work)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_the_host_clock_only_moves_forward() -> None:
    clock = VirtualClock()
    assert clock.advance(10) == 10
    assert clock.wait_until(5) == 10
    assert clock.wait_until(25) == clock.now == 25


def test_times_of_the_teaching_gpu_can_be_computed_by_hand() -> None:
    profile = load_profile("teaching")
    multiply = KernelCost("contraction", dtypes.float32, 2 * 1024**3, 3 * 4 * 1024**2)
    add = KernelCost("elementwise", dtypes.float32, 1 << 20, 3 * 4 << 20)
    assert kernel_ns(profile, multiply) == 2000 + round(2 * 1024**3 / 2.048e12 * 1e9)
    assert kernel_ns(profile, add) == 2000 + round((3 * 4 << 20) / 64e9 * 1e9)
    assert transfer_ns(profile.link, 4_000_000) == 2000 + 1_000_000
    assert local_copy_ns(profile, 64_000) == 2000 + 2000


def test_repeated_elements_are_read_once() -> None:
    assert touched_bytes(contiguous(dtypes.float32, (3, 4))) == 48
    assert touched_bytes(Spec(dtypes.float32, (3, 4), (0, 1))) == 16


@pytest.mark.parametrize("name", profile_names())
def test_profiles_are_complete_and_plausible(name: str) -> None:
    profile = load_profile(name)
    assert profile.max_allocation <= profile.memory
    assert {"float32", "float16", "bfloat16", "float64"} <= profile.peak.keys()
    assert {"default", "memory"} <= profile.efficiency.keys()
    assert all(0 < share <= 1 for share in profile.efficiency.values())
    assert 1e9 < profile.bandwidth < 1e13
    assert profile.dma_engines >= 1


def train(device: Device) -> tuple[list[np.ndarray], int]:
    """Run five steps; return the parameters and the final virtual time."""
    polyhal.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    x = polyhal.tensor(np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32), device=device)
    for _ in range(5):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
    return [p.numpy() for p in model.parameters()], sim_of(device).virtual_time


def test_two_runs_have_equal_bits_and_virtual_times(open_sim: OpenSim) -> None:
    (first, ends), (second, ends_too) = (train(open_sim()) for _ in range(2))
    assert ends == ends_too > 0
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_faster_device_takes_less_time_with_equal_bits(open_sim: OpenSim) -> None:
    (slow, slowly), (fast, quickly) = (train(open_sim(name)) for name in ("pi5", "h200"))
    assert quickly < slowly
    assert all(np.array_equal(a, b) for a, b in zip(slow, fast, strict=True))
