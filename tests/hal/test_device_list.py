"""Lists of devices, as one text or several."""

from __future__ import annotations

import pytest
from device_fakes import ACCELERATOR, CPU, GPU, fake, info, with_backends

from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.system.discovery import device_list
from polyhal.hal.system.discovery.device_list import open_devices


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up two cards, one of them also in a second backend, an accelerator board, and a processor with two drivers."""
    monkeypatch.delenv("POLYHAL_DEVICE", raising=False)
    big, small = info("Big", GPU, id="pci/0000:01:00.0"), info("Small", GPU, selector="1", id="pci/0000:02:00.0")
    found = with_backends(
        fake("ocl", big, small, info("Xeon", CPU, selector="2"), priority=50),
        fake("vk", info("Big", GPU, id="pci/0000:01:00.0")),
        fake("board", info("Odd", ACCELERATOR), aliases=("odd",)),
        fake("numpy", info("NumPy", CPU, selector=""), priority=-100),
    )
    monkeypatch.setattr(device_list, "registry", lambda: found)


def _names(devices: tuple[Device, ...]) -> list[str]:
    return [d.name for d in devices]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ocl:1", ["ocl:1"]),
        ("ocl:1, numpy", ["ocl:1", "numpy"]),
        (["ocl:1", "numpy,board"], ["ocl:1", "numpy", "board:0"]),
        ("gpu*", ["ocl:0", "ocl:1"]),
        ("gpu*1", ["ocl:0"]),
        ("cpu*", ["ocl:2"]),
        ("ocl*", ["ocl:0", "ocl:1", "ocl:2"]),
        ("odd*", ["board:0"]),
        ("all", ["ocl:0", "ocl:1", "board:0", "ocl:2"]),
    ],
)
def test_lists(machine: None, text: str | list[str], expected: list[str]) -> None:
    assert _names(open_devices(text)) == expected


@pytest.mark.parametrize("text", ["gpu*3", "gpu*0", "vk*2", "cpu*2"])
def test_more_devices_than_the_machine_has(machine: None, text: str) -> None:
    with pytest.raises(DeviceUnavailableError, match=r"names \d of \d devices; expected"):
        open_devices(text)


def test_a_kind_that_this_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_backends(fake("numpy", info("NumPy", CPU, selector="")))
    monkeypatch.setattr(device_list, "registry", lambda: found)
    for text in ("gpu*", "gpu*2"):
        with pytest.raises(
            DeviceUnavailableError, match=r"does not match a device: none of the kind 'gpu' was found; expected"
        ):
            open_devices(text)


@pytest.mark.parametrize("text", ["nothing*", "nothing:0", "ocl:9"])
def test_unknown_devices(machine: None, text: str) -> None:
    with pytest.raises(DeviceUnavailableError):
        open_devices(text)


@pytest.mark.parametrize("text", ["", " , ", []])
def test_empty_lists(machine: None, text: str | list[str]) -> None:
    with pytest.raises(ValueError, match="does not name a device; expected"):
        open_devices(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ocl:0,ocl:0", "ocl:0 occurs twice, as ocl:0"),
        ("gpu,numpy,ocl:0", "ocl:0 occurs twice, as gpu and ocl:0"),
        ("all,ocl:1", "ocl:1 occurs twice, as gpu:1 and ocl:1"),
    ],
)
def test_a_device_that_occurs_twice(machine: None, text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        open_devices(text)
    assert str(caught.value) == f"{said}; expected each device once"


def test_lists_may_contain_open_devices() -> None:
    device = Device("numpy")
    assert open_devices(device) == (device,)
    assert open_devices([device, "numpy:no_f64"]) == (device, Device("numpy:no_f64"))
    with pytest.raises(ValueError, match="numpy occurs twice"):
        open_devices([device, "numpy"])


def test_all_devices_of_a_simulated_machine() -> None:
    options = "memory=64MiB,compute=off"
    devices = open_devices(f"sim:h200*3,{options},numpy")
    assert _names(devices) == [f"sim:h200*3,{options}", *(f"sim:h200*3:{i},{options}" for i in (1, 2)), "numpy"]
    assert _names(open_devices("sim:h200*3:2")) == ["sim:h200*3:2"]
    with pytest.raises(DeviceUnavailableError, match="is not an option"):
        open_devices("sim:h200*3,speed=11")
