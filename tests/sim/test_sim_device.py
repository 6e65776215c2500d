"""The simulated device by the public API: names, several devices, streams, asynchronous reading, captured steps, planning."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from simulated import OpenSim, sim_of

import polyhal
from polyhal import nn, optim
from polyhal.backends.sim.backend import create
from polyhal.backends.sim.selector import SimSelector, parse_selector, parse_size
from polyhal.backends.sim.timing import transfer_ns
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError, OutOfMemoryError
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP
from polyhal.hal.protocol import Feature
from polyhal.hal.system.discovery.registry import Registry

X = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("", SimSelector()),
        ("teaching", SimSelector()),
        ("h200", SimSelector("h200")),
        ("h200*8", SimSelector("h200", 8)),
        ("h200*8:3", SimSelector("h200", 8, 3)),
        (",memory=64MiB", SimSelector(memory="64MiB")),
        ("h200*8,memory=64MiB,compute=off", SimSelector("h200", 8, memory="64MiB", compute=False)),
        ("rx480,faults=a/b.toml,mirror=opencl", SimSelector("rx480", faults="a/b.toml", mirror="opencl")),
    ],
)
def test_selectors_are_parsed_and_formatted(text: str, selector: SimSelector) -> None:
    assert parse_selector(text) == selector
    assert parse_selector(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("h200*8:8", "device index 8 is out of range for a machine of 8"),
        ("h200 8", "is not a selector of a simulated device"),
        ("h200,size=3", "'size=3' is not an option"),
        ("h200,memory=big", "'big' is not a size"),
        ("h2000", "unknown card 'h2000'; expected one of a100, a770, cpu_2core"),
    ],
)
def test_errors_of_invalid_selectors_state_the_expected_form(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        create(text)


def test_sizes_have_binary_units() -> None:
    assert [parse_size(t) for t in ("3", "2KiB", "1.5MiB", "1GiB")] == [3, 2048, 3 << 19, 1 << 30]


def test_the_device_is_hidden_and_opened_by_name() -> None:
    devices = Registry([EntryPoint("sim", "polyhal.backends.sim", ENTRY_POINT_GROUP)])
    assert devices.candidates() == []
    assert [c.name for c in devices.candidates(hidden=True)] == ["sim"]
    assert devices.open("sim") is devices.open("sim:teaching")
    assert devices.open("sim:h200").info.name == "Simulated H200"
    with pytest.raises(DeviceUnavailableError, match="unknown card"):
        devices.open("sim:h2000")


def test_devices_of_a_machine_share_only_its_clock() -> None:
    first, second = create("h200*8"), create("h200*8:3")
    alone = create("h200*4")
    assert first.machine is second.machine is not alone.machine
    assert (first.info.selector, second.info.selector) == ("h200*8", "h200*8:3")
    first.deallocate(first.allocate(1000))
    assert second.allocations == 0
    x = polyhal.tensor(X, device=Device.opened("first", first)).to(Device.opened("second", second))
    assert np.array_equal(x.numpy(), X)
    assert first.virtual_time == second.virtual_time > 0 == alone.virtual_time
    assert create("h200*8").machine is not first.machine, "the first machine is in use"


def test_devices_of_a_machine_copy_to_each_other_over_their_link() -> None:
    first, second = create("h200*2"), create("h200*2:1")
    data, out = np.random.default_rng(0).bytes(1 << 20), bytearray(1 << 20)
    source, target = first.allocate(1 << 20), second.allocate(1 << 20)
    first.copy_to_device(memoryview(data), source, 0)
    first.synchronize()
    begin = first.virtual_time
    second.copy_from_peer(first, source, 0, target, 0, 1 << 20).wait()
    link, profile = first.machine.profile.peer_link, first.machine.profile
    # The host writes five packets: a fence, a wait for the fence, the copy, a wait for the copy, and a fence.
    enqueued, copied = 5 * profile.submit_ns, 3 * profile.submit_ns + transfer_ns(link, 1 << 20)
    assert first.virtual_time - begin == max(enqueued, copied + profile.sync_ns)
    second.copy_from_device(target, 0, memoryview(out))
    assert out == data
    assert not second.can_copy_from(create("h200"))


def test_it_supports_every_optional_protocol_except_two(sim: Device) -> None:
    """Its memory is separate from the host's: host data are copied over a link. It does not compile graphs."""
    assert {feature for feature in Feature if feature not in sim.features} == {Feature.MEMORY_IMPORT, Feature.GRAPHS}


# --- results --------------------------------------------------------------------------------------------------------


def _step(device: Device) -> Any:
    polyhal.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def step(x: polyhal.Tensor) -> polyhal.Tensor:
        optimizer.zero_grad()
        loss = (nn.functional.dropout(model(x), 0.1) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_captured_steps_equal_eager_ones_bit_for_bit(sim: Device) -> None:
    losses = []
    for prepare in (lambda step: step, polyhal.jit):
        step = prepare(_step(sim))
        polyhal.manual_seed(1)
        losses.append([step(polyhal.tensor(X + i, device=sim)).item() for i in range(6)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_a_captured_step_costs_the_host_one_submission(sim: Device) -> None:
    step = polyhal.jit(_step(sim))
    x = polyhal.tensor(X, device=sim)
    for _ in range(3):
        step(x)
    sim.synchronize()
    backend = sim_of(sim)
    commands, packets = backend.commands, backend.driver.queues[0].written
    step(x)
    assert backend.commands - commands > 10
    assert backend.driver.queues[0].written - packets < 5


def test_streams_overlap_copies_and_kernels_in_virtual_time(open_sim: OpenSim) -> None:
    def run(device: Device, *, streams: bool) -> int:
        backend = sim_of(device)
        pinned = backend.allocate_pinned(4 << 20)
        target = backend.allocate(4 << 20)
        x = polyhal.tensor(np.ones((512, 512), np.float32), device=device)
        device.synchronize()
        begin = backend.virtual_time
        stream = device.stream()
        if streams:
            with stream.selected():
                event = backend.copy_to_device_async(pinned, target, 0)
        else:
            event = backend.copy_to_device_async(pinned, target, 0)
        for _ in range(4):
            y = x @ x
        event.wait()
        assert np.array_equal(y.numpy(), 512 * np.ones((512, 512)))
        device.synchronize()
        return backend.virtual_time - begin

    assert run(open_sim(), streams=True) < 0.8 * run(open_sim(), streams=False)


def test_profiles_are_in_virtual_time(sim: Device) -> None:
    x = polyhal.tensor(np.ones((512, 512), np.float32), device=sim)
    with polyhal.profile(sim) as found:
        x @ x
    expected = 2000 + 2 * 512**3 / 2.048e12 * 1e9
    assert found.kernels["matmul"].total == pytest.approx(expected, rel=0.01)


def test_asynchronous_reads_return_the_values_at_the_time_of_the_call(sim: Device) -> None:
    x = polyhal.tensor(X, device=sim)
    future = x.numpy_async()
    x += 1
    assert np.array_equal(future.result(10), X)
    assert np.array_equal(x.numpy(), X + 1)


def test_a_callback_runs_once_and_immediately_if_the_event_is_complete(sim: Device) -> None:
    backend = sim_of(sim)
    x = polyhal.tensor(X, device=sim)
    out, calls, called = np.empty_like(X), [], threading.Event()
    event = backend.copy_from_device_async(x.ref.handle, 0, memoryview(out).cast("B"))
    event.add_callback(lambda error: (calls.append((error, threading.current_thread().name)), called.set()))
    assert called.wait(10)
    event.wait()
    assert event.is_complete()
    event.add_callback(lambda error: calls.append((error, threading.current_thread().name)))
    assert [error for error, _ in calls] == [None, None]
    assert calls[1][1] == threading.current_thread().name


def test_a_failing_callback_is_printed_and_does_not_block_others(
    sim: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not block the end of the process either, which waits for all callbacks."""
    backend = sim_of(sim)
    x = polyhal.tensor(X, device=sim)
    out, called = np.empty_like(X), threading.Event()
    for callback in (lambda error: {}["a missing name"], lambda error: called.set()):
        backend.copy_from_device_async(x.ref.handle, 0, memoryview(out).cast("B")).add_callback(callback)
    assert called.wait(10)
    assert "KeyError: 'a missing name'" in capsys.readouterr().err


def test_many_launches_wrap_around_the_ring(sim: Device) -> None:
    x = polyhal.zeros((4,), device=sim)
    for _ in range(3000):
        x += 1
    assert x.tolist() == [3000.0] * 4
    assert len(sim_of(sim).gpu.pinned_memory) < 20, "kernel arguments were not released"


# --- memory ---------------------------------------------------------------------------------------------------------


def test_memory_has_the_requested_size(open_sim: OpenSim) -> None:
    device = open_sim(",memory=1MiB")
    assert device.info.memory == device.backend.memory_available() == 1 << 20
    with pytest.raises(OutOfMemoryError, match=r"largest single block is 0\.50 MiB"):
        polyhal.zeros((200_000,), device=device)


def test_planning_does_not_allocate_host_memory(open_sim: OpenSim) -> None:
    device = open_sim("h200,compute=off")
    x = polyhal.empty((60_000, 60_000), device=device)
    y = x @ x
    begin = sim_of(device).virtual_time
    assert y[:2, :2].numpy().tolist() == [[0, 0], [0, 0]]
    assert sim_of(device).virtual_time - begin > 5e9, "2 * 60000**3 operations at 40 TFLOP/s"


def test_an_unused_device_stops_its_threads(open_sim: OpenSim) -> None:
    device = open_sim()
    polyhal.tensor(X, device=device).numpy_async().result(10)
    threads = [t for t in threading.enumerate() if t.name.startswith("sim")]
    gpu = sim_of(device).gpu
    assert gpu.powered
    del device
    gc.collect()
    assert not gpu.powered
    deadline = time.monotonic() + 10
    while len([t for t in threads if t.is_alive()]) == len(threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len([t for t in threads if t.is_alive()]) < len(threads)


def test_a_process_may_end_with_work_in_flight() -> None:
    code = """
import polyhal
from polyhal.backends.sim.backend import create
from polyhal.hal.device import Device
device = Device.opened("sim", create(""))
x = polyhal.ones((256, 256), device=device)
for _ in range(100):
    x = x @ x * 0.01
x.numpy_async()
device.flush()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_an_error_in_a_forked_child_advises_to_open_the_device_there() -> None:
    code = """
import os, sys
import numpy as np
from polyhal.backends.sim.backend import create
from polyhal.hal.errors import BackendError
backend = create("")
backend.copy_to_device(memoryview(bytes(8)), backend.allocate(8), 0)
backend.synchronize()
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    backend.copy_to_device(memoryview(bytes(8)), backend.allocate(8), 0)
except BackendError as error:
    print(error, flush=True)
    os._exit(0)
os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "opened before this process was forked; start processes with the method spawn" in done.stdout


def test_steps_that_are_captured_repeatedly_share_their_kernels(sim: Device) -> None:
    """Otherwise a long-running program would fill the device's table."""
    x = polyhal.ones((4, 4), device=sim)
    sizes = []
    for number in range(6):
        step = polyhal.jit(lambda a, n=number: ((a @ a).exp() * 2).sum(), warm_up=False)
        assert step(x).item() == step(x).item()
        sizes.append(len(sim_of(sim).gpu.kernels))
    assert sizes[-1] == sizes[1]


def test_kernels_with_different_parameters_are_distinct(sim: Device) -> None:
    x = polyhal.tensor([[1.0, 2.0], [3.0, 4.0]], device=sim)
    assert x.sum(axis=0).tolist() == [4, 6]
    assert x.sum(axis=1).tolist() == [3, 7]
    assert (x**2).tolist() == [[1, 4], [9, 16]]
    assert (x**1).tolist() == x.tolist()
    assert polyhal.sort(x, descending=True).tolist() == [[2, 1], [4, 3]]
    assert polyhal.sort(x, descending=False).tolist() == x.tolist()
