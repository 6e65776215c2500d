"""Adapters without 64-bit integers: left out of discovery, with a reason and what to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from polyhal.backends.wgpu import discovery, unusable
from polyhal.hal.capabilities import DeviceInfo, UnusableDevice
from polyhal.hal.errors import DeviceUnavailableError

INTEGERS = ["shader-int64"]


def listed(name: str, api: str, features: list[str], device_id: int = 0) -> Any:
    """An adapter as wgpu lists it."""
    info = {
        "backend_type": api, "adapter_type": "IntegratedGPU", "device": name, "description": "", "vendor": "",
        "vendor_id": 0x14E4, "device_id": device_id,
    }  # fmt: skip
    return SimpleNamespace(info=info, features=features)


@pytest.fixture
def adapters(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What wgpu lists."""
    wgpu = pytest.importorskip("wgpu")
    found: list[Any] = []
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: found)
    return found


@pytest.mark.parametrize(
    ("api", "fix"),
    [
        ("Vulkan", "update the driver"),
        ("D3D12", "dxcompiler.dll"),
        ("OpenGL", "install the Vulkan driver"),
    ],
)
def test_an_adapter_without_integers_is_left_out_and_says_why(adapters: list[Any], api: str, fix: str) -> None:
    adapters[:] = [listed("V3D 4.2", api, []), listed("Good", "Vulkan", INTEGERS, 1)]
    good, left_out = discovery.probe()
    assert isinstance(good, DeviceInfo)
    assert (good.name, good.selector) == ("Good", "0")
    assert isinstance(left_out, UnusableDevice)
    assert left_out.name == "V3D 4.2"
    assert left_out.reason == f"it has no 64-bit integers, which indices need, through {api}"
    assert fix in left_out.fix
    assert 'Device("wgpu:V3D 4.2") opens it all the same' in left_out.fix
    assert discovery.select("V3D 4.2").api == api


def test_a_device_that_another_api_offers_with_integers_is_not_reported(adapters: list[Any]) -> None:
    adapters[:] = [
        listed("NVIDIA GeForce RTX 3080", "Vulkan", INTEGERS, 7),
        listed("NVIDIA GeForce RTX 3080", "D3D12", [], 7),
        listed("NVIDIA GeForce RTX 3080/PCIe/SSE2", "OpenGL", []),
    ]
    assert [(a.info.name, a.api) for a in discovery.devices()] == [("NVIDIA GeForce RTX 3080", "Vulkan")]
    assert len(discovery.probe()) == 1
    assert len(discovery.devices(every_api=True)) == 3


def test_without_any_usable_device_the_reasons_are_the_error(adapters: list[Any]) -> None:
    adapters[:] = [listed("V3D 4.2", "OpenGLES", []), listed("V3D 4.2", "Vulkan", [])]
    (left_out,) = discovery.probe()
    assert "through Vulkan or OpenGLES" in left_out.reason
    with pytest.raises(RuntimeError, match=r"no wgpu adapter can be used: V3D 4\.2: it has no 64-bit integers"):
        discovery.devices()
    assert discovery.select("opengles").api == "OpenGLES"
    with pytest.raises(DeviceUnavailableError, match="no wgpu device '0'; expected one of none by index"):
        discovery.select("0")


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("Mesa Intel(R) UHD Graphics 630 (CFL GT2)", "Intel(R) UHD Graphics 630 (CFL GT2)", True),
        ("AMD Radeon RX 6800 (radeonsi, navi21, LLVM 15.0.6)", "AMD Radeon RX 6800 (RADV NAVI21)", True),
        ("NVIDIA GeForce GT 710/PCIe/SSE2", "NVIDIA GeForce RTX 3080", False),
    ],
)
def test_cards_are_told_apart_by_name_where_an_api_tells_no_ids(name: str, other: str, same: bool) -> None:
    assert unusable.is_same_card(name, other) is same
