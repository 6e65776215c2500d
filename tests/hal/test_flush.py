"""Steps end by submitting their work, so that a device that records launches works while the host prepares the next batch."""

from __future__ import annotations

import pytest

import polyhal
from polyhal import nn, optim
from polyhal.backends.numpy.backend import NumpyBackend, create
from polyhal.hal.device import Device
from polyhal.hal.protocol import Feature


class Recording(NumpyBackend):
    """A backend that counts its flushes."""

    def __init__(self) -> None:
        super().__init__(create("").info)
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1


@pytest.fixture
def backend() -> Recording:
    return Recording()


@pytest.fixture
def device(backend: Recording) -> Device:
    return Device.opened("recording", backend)


def test_flush_is_a_no_op_on_a_device_without_it() -> None:
    device = Device.opened("plain", create(""))
    assert Feature.FLUSH not in device.features
    device.flush()


def test_an_optimizer_step_ends_with_a_flush(backend: Recording, device: Device) -> None:
    model = nn.Linear(3, 2).to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    loss = model(polyhal.ones((4, 3), device=device)).sum()
    loss.backward()
    assert backend.flushes == 0
    optimizer.step()
    assert backend.flushes == 1


def test_a_captured_step_ends_with_a_flush(backend: Recording, device: Device) -> None:
    x = polyhal.ones((4,), device=device)
    step = polyhal.jit(lambda v: (v * 2 + 1).sum(), warm_up=False)
    step(x)
    before = backend.flushes
    assert step(x).item() == 12
    assert backend.flushes == before + 1
