"""After the loss of a device: all work on it raises DeviceLostError, and its names open a new device in the same process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from device_fakes import CPU, info

import polyhal
from polyhal import nn, optim
from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceLostError, DeviceUnavailableError
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.protocol import API_VERSION
from polyhal.hal.system.discovery.registry import Registry, registry

SIM = "sim:teaching,memory=64MiB"


class FragileBackend(NumpyBackend):
    """NumPy on a device that a test can mark as lost."""

    lost = False
    stays_away = False
    """True if it can no longer be opened."""

    def is_lost(self) -> bool:
        return self.lost


def fragile(name: str, count: int = 1) -> tuple[BackendSpec, dict[str, FragileBackend]]:
    """Return a backend with `count` devices, and the last opened device of each selector."""
    devices = [replace(info(f"{name} {i}", CPU, selector=str(i)), backend=name) for i in range(count)]
    opened: dict[str, FragileBackend] = {}

    def create(selector: str) -> FragileBackend:
        if selector in opened and opened[selector].stays_away:
            raise RuntimeError("the driver does not come back")
        opened[selector] = FragileBackend(devices[int(selector)])
        return opened[selector]

    return BackendSpec(name, lambda: devices, create, api_version=API_VERSION), opened


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> tuple[Registry, dict[str, FragileBackend]]:
    monkeypatch.delenv("POLYHAL_DEVICE", raising=False)
    devices = Registry([])
    spec, opened = fragile("card")
    devices.add(spec)
    return devices, opened


def test_a_lost_device_is_reopened_under_every_name(one: tuple[Registry, dict[str, FragileBackend]]) -> None:
    devices, opened = one
    first = devices.open("card:0")
    assert devices.open("card") is devices.open("card:0") is devices.open("cpu") is first
    opened["0"].lost = True
    assert first.is_lost
    second = devices.open("cpu")
    assert second is devices.open("card") is devices.open("card:0")
    assert second is not first
    assert not second.is_lost


def test_the_default_is_chosen_again(one: tuple[Registry, dict[str, FragileBackend]], speeds_folder: object) -> None:
    devices, opened = one
    first = devices.open(None)
    opened["0"].lost = True
    assert devices.open(None) is devices.open(None) is not first


def test_a_default_set_by_the_program_keeps_its_name(speeds_folder: object) -> None:
    devices = Registry([])
    spec, opened = fragile("card", 2)
    devices.add(spec)
    devices.set_default("card:1")
    opened["1"].lost = True
    assert devices.open(None).info.selector == "1"
    assert not devices.open(None).is_lost


def test_nothing_keeps_a_lost_device_alive(one: tuple[Registry, dict[str, FragileBackend]]) -> None:
    devices, opened = one
    device = devices.open("card")
    gone = weakref.ref(device)
    opened["0"].lost = True
    del device
    devices.open("card")
    gc.collect()
    assert gone() is None


# --- tensors, modules and captured steps ----------------------------------------------------------------------------


@pytest.fixture
def sim() -> Iterator[Device]:
    yield Device(SIM)
    lose(Device(SIM))  # so that no later test uses it


def lose(device: Device) -> None:
    """Make a simulated device halt."""
    backend: Any = device.backend
    backend.faults.inject("device_lost")
    with pytest.raises(DeviceLostError):
        polyhal.ones((1,), device=device).numpy()
    assert device.is_lost


def model_on(device: Device) -> tuple[nn.Module, Any]:
    polyhal.manual_seed(0)
    model = nn.Linear(3, 2).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    @polyhal.jit
    def step(x: polyhal.Tensor) -> polyhal.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


X = np.ones((4, 3), np.float32)


def test_errors_on_a_lost_device_state_the_remedy(sim: Device) -> None:
    model, step = model_on(sim)
    x = polyhal.tensor(X, device=sim)
    for _ in range(3):
        step(x)
    lose(sim)
    for use in (
        lambda: x.numpy(),
        lambda: x + 1,
        lambda: x.to("numpy"),
        lambda: model(x),
        lambda: step(x),
        model.state_dict()["weight"].numpy,
        lambda: polyhal.ones((1,), device=sim),
        sim.synchronize,
        sim.empty_cache,
    ):
        with pytest.raises(DeviceLostError, match=r"open it again with Device\(name\), and load the last checkpoint"):
            use()


def test_tensors_from_before_and_after_a_loss_do_not_mix(sim: Device) -> None:
    model, step = model_on(sim)
    x = polyhal.tensor(X, device=sim)
    for _ in range(3):
        step(x)
    lose(sim)
    fresh = polyhal.tensor(X, device=SIM)
    assert fresh.device is Device(SIM) is not sim
    for use in (lambda: model(fresh), lambda: step(fresh), lambda: x + fresh):
        with pytest.raises(DeviceLostError, match="load the last checkpoint"):
            use()


def test_training_continues_from_a_checkpoint_in_the_same_process(sim: Device) -> None:
    x = polyhal.tensor(X, device=sim)
    model, step = model_on(sim)
    for _ in range(3):
        step(x)
    saved = {name: value.numpy() for name, value in model.state_dict().items()}
    expected = model(x).numpy()
    lose(sim)
    again, _ = model_on(Device(SIM))
    again.load_state_dict(saved)
    assert np.array_equal(again(polyhal.tensor(X, device=SIM)).numpy(), expected)


def test_the_default_device_of_the_process_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_DEVICE", SIM)
    before = registry()._default
    registry().set_default(None)
    try:
        x = polyhal.ones((2,))
        lose(x.device)
        assert polyhal.ones((2,)).device is Device(SIM) is not x.device
    finally:
        registry().set_default(before)
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("POLYHAL_DEVICE")
            lose(Device(SIM))


def test_a_device_that_does_not_come_back_is_unavailable(one: tuple[Registry, dict[str, FragileBackend]]) -> None:
    devices, opened = one
    devices.open("card")
    opened["0"].lost = opened["0"].stays_away = True
    with pytest.raises(DeviceUnavailableError, match="the driver does not come back"):
        devices.open("card")
