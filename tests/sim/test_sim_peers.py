"""Copies between the devices of a simulated machine: their order, their virtual time, and the loss of a device."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import pytest
from simulated import sim_of

import polyhal
from polyhal.backends.sim.backend import SimBackend, create
from polyhal.backends.sim.events import SimEvent
from polyhal.backends.sim.machine import SimulatedMachine
from polyhal.backends.sim.packets import Barrier
from polyhal.backends.sim.selector import SimSelector
from polyhal.backends.sim.timing import transfer_ns
from polyhal.hal.core.hardware.profile import load_profile
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, DeviceLostError
from polyhal.hal.protocol import TRANSFER
from polyhal.hal.testing.kit import contract_peer
from polyhal.hal.testing.kit.scope import Scope


@pytest.fixture
def pair() -> tuple[Device, Device]:
    """Open two devices of a new machine."""
    machine = SimulatedMachine(load_profile("h200"), 2)
    first, second = (SimBackend(machine, SimSelector("h200", 2, i)) for i in range(2))
    return Device.opened("sim:h200*2", first), Device.opened("sim:h200*2:1", second)


@pytest.mark.parametrize("check", ["order", "ranges", "released_memory", "streams", "event"])
def test_copies_keep_the_contract(pair: tuple[Device, Device], check: str) -> None:
    first, second = pair
    getattr(contract_peer, check)(first.backend, second.backend, Scope(small=True))
    getattr(contract_peer, check)(second.backend, first.backend, Scope(small=True))


def test_tensors_move_over_the_link_and_not_through_the_host(pair: tuple[Device, Device]) -> None:
    first, second = pair
    with sim_of(first).record_events() as log:
        x = polyhal.ones((512, 512), device=first)
        moved = (x * 2).permute((1, 0))[1:].to(second)
    assert np.array_equal(moved.numpy(), np.full((511, 512), 2, np.float32))
    transfers = [e.text for e in log.entries() if e.action.name == "TRANSFER"]
    assert len(transfers) == 1
    assert "device to peer" in transfers[0]


def test_a_profile_has_the_copies_over_links_and_the_launches_of_ops(pair: tuple[Device, Device]) -> None:
    """Each launch counts for the op that made it; the link's times follow from its latency and bandwidth."""
    first, second = pair
    x = polyhal.ones((512, 512), device=first)
    with polyhal.profile(first, second) as found:
        (x * 2).to(second).exp()
    launches = {x.op: (x.kernel, x.device) for x in found.launches if x.op}
    assert launches["multiply"] == ("multiply", first.name)
    assert launches["exp"] == ("exp", second.name)
    link = sim_of(first).machine.profile.peer_link
    copies = [x.end - x.begin for x in found.launches if x.kernel == TRANSFER]
    assert copies == [transfer_ns(link, 512 * 512 * 4)]
    assert found.is_virtual
    assert found.table().splitlines()[0].count("(virtual)") == 1


def test_a_device_waits_for_its_peer_without_the_host(pair: tuple[Device, Device]) -> None:
    """The host enqueues work on both devices; the second device's times depend on the first's."""
    first, second = pair
    n = 4096
    x = polyhal.ones((n, n), device=first)
    y = x @ x
    enqueued_at = sim_of(first).virtual_time
    z = y.to(second) + 1
    profile = sim_of(first).machine.profile
    assert sim_of(first).virtual_time - enqueued_at < 100 * profile.submit_ns
    assert z[0, 0].item() == n + 1
    assert sim_of(first).virtual_time > enqueued_at + transfer_ns(profile.peer_link, y.nbytes)


def test_the_same_program_takes_the_same_virtual_time(pair: tuple[Device, Device]) -> None:
    def run(devices: tuple[Device, ...]) -> int:
        x = polyhal.ones((256, 256), device=devices[0])
        for i in range(6):
            x = (x @ x * 0.01).to(devices[(i + 1) % 2])
        x.numpy()
        return sim_of(devices[0]).virtual_time

    machine = SimulatedMachine(load_profile("h200"), 2)
    others = tuple(Device.opened(f"other{i}", SimBackend(machine, SimSelector("h200", 2, i))) for i in range(2))
    assert run(pair) == run(others)


def test_threads_of_the_host_work_at_the_same_time(pair: tuple[Device, Device]) -> None:
    """Each thread has its own device. Their order does not matter, and the thread that starts them does not wait."""
    begin = sim_of(pair[0]).virtual_time
    ends = {}

    def work(device: Device) -> None:
        y = polyhal.ones((64, 64), device=device)
        for _ in range(3):
            y = y @ y * 0.01
        device.synchronize()
        ends[device] = sim_of(device).virtual_time

    for device in reversed(pair):
        _on_a_thread(lambda device=device: work(device))
    assert ends[pair[0]] == ends[pair[1]] > begin
    assert sim_of(pair[0]).virtual_time == begin


def test_a_thread_is_not_earlier_than_the_events_it_waits_for(pair: tuple[Device, Device]) -> None:
    first, second = map(sim_of, pair)
    found = []

    def mark() -> None:
        for _ in range(5):
            first.mark()
        found.append(first.mark())
        found.append(first.virtual_time)

    _on_a_thread(mark)
    event, marked_at = found
    assert second.virtual_time < marked_at
    second.wait_for(event)
    assert second.virtual_time == marked_at
    first.mark()
    assert first.virtual_time == marked_at + first.machine.profile.submit_ns


def _on_a_thread(work: Callable[[], None]) -> None:
    """Call `work` on a thread that starts at this thread's time."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, work).result()


def test_a_wait_for_a_device_that_is_lost_ends(pair: tuple[Device, Device]) -> None:
    first, second = pair
    x = polyhal.ones((64, 64), device=first)
    first.synchronize()
    sim_of(first).faults.inject("device_lost", at=sim_of(first).commands + 1)
    moved = (x + 1).to(second)
    with pytest.raises(BackendError, match="was lost while command"):
        moved.numpy()


def test_memory_of_a_stream_stays_while_another_stream_is_done(pair: tuple[Device, Device]) -> None:
    """A wait for one queue does not imply that earlier commands of others are done."""
    a, b = map(sim_of, pair)
    source, target = memoryview(bytearray(b"polyhal!")), a.allocate(8)
    gate = SimEvent(b.driver)
    stream = a.open_stream()
    a.switch_stream(stream)
    a.wait_for(gate)
    copied = a.copy_to_device_async(source, target, 0)
    a.switch_stream(None)
    a.mark().wait()
    assert not copied.is_complete()
    b.driver.submit(Barrier, event=gate)
    b.flush()
    copied.wait()
    found = bytearray(8)
    a.copy_from_device(target, 0, memoryview(found))
    assert found == b"polyhal!"


def test_an_event_of_another_machine_is_refused(pair: tuple[Device, Device]) -> None:
    """No queue here sets the packet's signal, so that a wait would not end."""
    other = SimBackend(SimulatedMachine(load_profile("h200"), 2), SimSelector("h200", 2))
    with pytest.raises(
        BackendError, match="a device of another simulated machine; expected an event of the same machine"
    ):
        sim_of(pair[1]).wait_for(other.mark())


def test_a_wait_for_a_lost_device_does_not_refer_to_its_replacement(pair: tuple[Device, Device]) -> None:
    first, second = map(sim_of, pair)
    gate = SimEvent(first.driver)
    second.wait_for(gate)
    waiting = second.driver.fence()
    first.faults.inject("device_lost", at=first.commands + 1)
    again = SimBackend(first.machine, SimSelector("h200", 2, 0))
    assert again.gpu.number != first.gpu.number
    assert not waiting.is_complete()
    with pytest.raises(BackendError):
        first.mark().wait()
    with pytest.raises(BackendError, match="was lost while command"):
        waiting.wait()
    x = polyhal.ones((8,), device=Device.opened("again", again))
    assert (x.to(pair[1]) + 1).tolist() == [2.0] * 8


def test_a_device_joins_the_machine_of_its_peers_after_a_newer_machine_is_gone() -> None:
    first = create("h200*5")
    create("h200*5")
    gc.collect()
    assert create("h200*5:1").machine is first.machine


def test_a_packet_whose_execution_raises_halts_the_device(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise queues would deadlock on a thread that has ended."""
    first, second = map(sim_of, pair)

    def owner(wait: object) -> None:
        raise KeyError("no such device")

    monkeypatch.setattr(second.gpu, "owner", owner)
    second.wait_for(first.mark())
    with pytest.raises(DeviceLostError, match="KeyError: 'no such device'"):
        second.driver.fence().wait()


def test_threads_open_pairs_of_devices_that_wait_for_each_other() -> None:
    """The garbage collector closes devices on any thread, while other threads enqueue work."""

    def work(thread: int) -> float:
        total = 0.0
        for _ in range(25):
            first, second = (Device.opened(f"{thread}:{i}", create(f"h200*{7 + thread % 2}:{i}")) for i in (0, 1))
            x = polyhal.ones((16,), device=first)
            if sim_of(second).can_copy_from(first.backend):
                sim_of(second).wait_for(sim_of(first).mark())
            total += (x.to(second) + 1).to(first).sum().item()
            gc.collect(0)
        return total

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [800.0] * 4
