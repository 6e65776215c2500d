"""Collectives of devices with peer access: results, order and paths of the copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import polyhal as ph
from polyhal.backends.sim.backend import SimBackend
from polyhal.backends.sim.machine import SimulatedMachine
from polyhal.backends.sim.selector import SimSelector
from polyhal.backends.sim.timing import transfer_ns
from polyhal.hal.core.hardware.profile import load_profile
from polyhal.hal.device import Device
from polyhal.hal.system.communicators import direct
from polyhal.hal.system.communicators.direct import DirectCopies
from polyhal.hal.system.communicators.local import LocalCommunicator
from polyhal.hal.system.communicators.relay import Relay
from polyhal.parallel import Group

Devices = Callable[[int], list[Device]]


def cards(count: int, *, compute: bool = True) -> list[Device]:
    """Return the devices of a new simulated machine."""
    machine = SimulatedMachine(load_profile("h200"), count)
    made = [SimBackend(machine, SimSelector("h200", count, i, compute=compute)) for i in range(count)]
    return [Device.opened(f"card:{i}", backend) for i, backend in enumerate(made)]


def carrier(devices: Sequence[Device]) -> type:
    return type(LocalCommunicator(devices)._carrier)


def test_devices_of_one_machine_copy_directly_and_others_through_the_host() -> None:
    assert carrier(cards(3)) is DirectCopies
    assert carrier([*cards(2), Device("numpy")]) is Relay
    assert carrier([*cards(1), *cards(1)]) is Relay


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("chunk", [256, 1 << 20])
def test_collectives_in_a_row(count: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads the results of the previous one, without other work in between."""
    monkeypatch.setattr(direct, "CHUNK", chunk)
    rng = np.random.default_rng(count)
    values = [rng.integers(0, 9, (2 * count + 1, 301)).astype(np.float32) for _ in range(count)]
    group = Group(cards(count))
    tensors = [ph.tensor(v, device=d) for v, d in zip(values, group.devices, strict=True)]
    total = np.sum(values, 0)
    for _ in range(3):
        parts = group.reduce_scatter(tensors)
        wholes = group.all_gather(parts)
        again = group.broadcast(wholes[-1], root=count - 1)
        for got in (*wholes, *again, *group.all_reduce(tensors)):
            np.testing.assert_array_equal(got.numpy(), total)


def test_copies_of_different_pairs_run_at_the_same_time() -> None:
    """In virtual time: two devices exchange halves in both directions at the same time, and four exchange smaller parts."""

    def duration(count: int) -> float:
        group = Group(cards(count, compute=False))
        tensors = [ph.ones((1 << 29,), device=d) for d in group.devices]
        for d in group.devices:
            d.synchronize()
        begin = group.devices[0].backend.virtual_time  # type: ignore[attr-defined]
        group.all_reduce(tensors)
        for d in group.devices:
            d.synchronize()
        return float(group.devices[0].backend.virtual_time - begin)  # type: ignore[attr-defined]

    two, four = duration(2), duration(4)
    half = transfer_ns(load_profile("h200").peer_link, 1 << 30)
    assert 2 * half < two < 3 * half, "one after the other they would take four times as long as one"
    assert four < 2 * two, "more than twelve halves would go one after the other"
