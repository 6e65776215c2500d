"""Collectives among emulated CUDA devices, whose kernels write to each other's windows."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from emulated_exchange import EmulatedExchanges

import polyhal as ph
from polyhal.backends.opencl_c.collectives import schedule, window_communicator
from polyhal.backends.opencl_c.collectives.window_communicator import WindowCommunicator
from polyhal.backends.opencl_c.lowering.collective.exchange import Geometry
from polyhal.hal.device import Device
from polyhal.parallel import Group


@pytest.fixture
def two(emulate: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two devices, whose exchanges run in NumPy, over links that count as fast."""
    emulation = emulate(2)
    exchanges = EmulatedExchanges(emulation.library.machine)
    for backend in emulation.backends:
        exchanges.install(backend, monkeypatch)
    monkeypatch.setattr(window_communicator, "GEOMETRY", Geometry(channels=8, group=16, slot=1024, batch=1))
    monkeypatch.setattr(WindowCommunicator, "is_fast", lambda self: True)
    return emulation


def devices(emulation: Any) -> list[Device]:
    return [Device.opened(f"cuda:{i}", b) for i, b in enumerate(emulation.backends)]


def test_collectives_of_each_kind(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(devices(two))
    assert isinstance(group.communicator, WindowCommunicator)
    rng = np.random.default_rng(0)
    for size, one_shot in ((1, 1 << 20), (601, 1 << 20), (601, -1)):
        monkeypatch.setattr(schedule, "_ONE_SHOT_BYTES", one_shot)
        values = [rng.integers(0, 50, size).astype(np.float32) for _ in group.devices]
        xs = [ph.tensor(v, device=d) for v, d in zip(values, group.devices, strict=True)]
        for got in group.all_reduce(xs):
            np.testing.assert_array_equal(got.numpy(), sum(values))
        parts = group.reduce_scatter(xs)
        np.testing.assert_array_equal(np.concatenate([p.numpy() for p in parts]), sum(values))
        for got in [*group.all_gather(parts), *group.broadcast(group.all_gather(parts)[1], 1)]:
            np.testing.assert_array_equal(got.numpy(), sum(values))


def test_a_captured_step_sums_within_its_graphs(two: Any) -> None:
    group = Group(devices(two))
    assert group.communicator.on_compute_stream
    step = ph.jit(lambda x, y: [z + 1 for z in group.all_reduce([x * 2, y])], warm_up=False)
    for n in range(4):
        inputs = [ph.full((300,), float(n), device=d) for d in group.devices]
        with two.library.logged() as calls:
            results = step(*inputs)
        assert [z.tolist() for z in results] == [[3 * n + 1] * 300] * 2
    assert calls.count("cuGraphLaunch") == 2
    assert "cuLaunchKernel" not in calls, "the sum is a part of each device's graph"


def test_devices_that_do_not_reach_each_other_copy(emulate: Any) -> None:
    emulation = emulate(2, peers=False)
    group = Group(devices(emulation))
    assert not isinstance(group.communicator, WindowCommunicator)
    xs = [ph.full((5,), float(i + 1), device=d) for i, d in enumerate(group.devices)]
    assert [x.tolist() for x in group.all_reduce(xs)] == [[3.0] * 5] * 2
    assert "cuMemcpyPeerAsync" in emulation.library.calls


def test_windows_end_with_their_devices(two: Any) -> None:
    functions = two.library.machine
    group = Group(devices(two))
    assert isinstance(group.communicator, WindowCommunicator)
    mapped = [b for b in functions.memory.blocks(functions.devices[0]) if b.accessors is not None]
    assert len(mapped) == 2, "its own addresses, and the other device's"
    del group, mapped
    two.backends.clear()
    gc.collect()
    assert not [b for b in functions.memory.blocks(functions.devices[0]) if b.accessors is not None]
