"""Devices that are listed but cannot run kernels: excluded from discovery, with a reason and a remedy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from polyhal.backends.opencl import discovery, unusable
from polyhal.hal.capabilities import UnusableDevice
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.system.discovery import processor

_PLATFORM = SimpleNamespace(name="Portable Computing Language", version="OpenCL 3.0 LLVM 14")
_OLD_COMPILER = "error: unknown target CPU 'generic'"


def listed(**attributes: Any) -> Any:
    """Return a device as a driver of OpenCL 3.0 lists it."""
    device = {
        "name": "pthread-a processor",
        "version": "OpenCL 3.0 a-target",
        "driver_version": "3.0-rc2",
        "available": True,
        "profile": "FULL_PROFILE",
        "extensions": "",
        "compiler_available": True,
        "type": cl.device_type.CPU,
    }
    return SimpleNamespace(**{**device, **attributes})


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Simulate an empty cache and a compiler that accepts everything and counts calls."""
    names: list[str] = []

    def compile_trial(device: Any) -> str:
        names.append(device.name)
        return _OLD_COMPILER if "new" in device.name else ""

    monkeypatch.setattr(unusable, "_compile", compile_trial)
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    return names


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"version": "OpenCL 1.1 AMD-APP"}, "it supports OpenCL 1.1"),
        ({"version": "OpenCL 1.0 "}, "it supports OpenCL 1.0"),
        ({"profile": "EMBEDDED_PROFILE", "extensions": "cl_khr_fp16"}, "without 64-bit integers"),
        ({"available": False}, "not available"),
        ({"compiler_available": False}, "has no compiler"),
        ({"name": "pthread-a new processor"}, f"older than this processor: {_OLD_COMPILER}"),
    ],
)
def test_devices_that_cannot_run_kernels_are_excluded(
    attributes: dict[str, Any], reason: str, compiled: list[str]
) -> None:
    found = unusable.examine(_PLATFORM, listed(**attributes))
    assert found is not None
    assert reason in found.reason
    assert found.fix
    assert found.name.endswith("(Portable Computing Language 3.0-rc2)")


@pytest.mark.parametrize(
    "attributes", [{}, {"version": "OpenCL 1.2 "}, {"profile": "EMBEDDED_PROFILE", "extensions": "x cles_khr_int64"}]
)
def test_devices_that_can_run_kernels_are_not(attributes: dict[str, Any], compiled: list[str]) -> None:
    assert unusable.examine(_PLATFORM, listed(**attributes)) is None


ZEN_3 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3"


def test_a_compiler_that_takes_zen_4_for_zen_3_is_left_out(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "instruction_sets", lambda: frozenset({"avx2", "avx512f"}))
    found = unusable.examine(_PLATFORM, listed(version=ZEN_3))
    assert found is not None
    assert "takes this processor for znver3" in found.reason
    assert "newer version" in found.fix
    assert unusable.examine(_PLATFORM, listed(version=ZEN_3.replace("znver3", "skylake-avx512"))) is None
    monkeypatch.setattr(processor, "instruction_sets", lambda: frozenset({"avx2"}))
    assert unusable.examine(_PLATFORM, listed(version=ZEN_3)) is None
    assert compiled  # the trial counts compilations


def test_a_compiler_is_tried_once_per_driver_and_processor(compiled: list[str]) -> None:
    for device in (listed(), listed(), listed(version="OpenCL 3.0 another-target"), listed(driver_version="3.1")):
        assert unusable.examine(_PLATFORM, device) is None
    assert len(compiled) == 3


def test_a_compiler_that_refuses_is_tried_again(compiled: list[str]) -> None:
    """Repairing the driver does not require clearing a cache."""
    for _ in range(2):
        assert unusable.examine(_PLATFORM, listed(name="a new processor")) is not None
    assert len(compiled) == 2


def test_other_drivers_compile_nothing(compiled: list[str]) -> None:
    assert unusable.examine(SimpleNamespace(name="A vendor's platform", version="3"), listed()) is None
    assert compiled == []


def test_a_read_only_cache_only_costs_time(compiled: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    for _ in range(2):
        assert unusable.examine(_PLATFORM, listed()) is None
    assert len(compiled) == 2


def test_real_compilers_accept_the_kernel_and_refuse_a_wrong_one(
    found: discovery.OpenCLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unusable._compile.__wrapped__(found.cl) == ""
    monkeypatch.setattr(unusable, "_TRIAL", "kernel void trial(global int *out) { out[0] = undeclared; }")
    assert unusable._compile.__wrapped__(found.cl)


@pytest.fixture
def only_a_broken_one(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine whose only driver cannot compile."""
    monkeypatch.setattr(discovery, "_listed", lambda: ([(_PLATFORM, listed(name="pthread-new"))], []))


@pytest.mark.usefixtures("only_a_broken_one")
class TestOnlyABrokenDevice:
    def test_it_is_reported(self) -> None:
        (device,) = discovery.probe()
        assert isinstance(device, UnusableDevice)

    def test_no_device_is_available(self) -> None:
        with pytest.raises(RuntimeError, match=f"no OpenCL device can be used: .*{_OLD_COMPILER}") as raised:
            discovery.devices()
        assert "newer version of the driver" in raised.value.__notes__[0]

    @pytest.mark.parametrize("selector", ["pocl", "pthread", "pocl/2:1", "0"])
    def test_selecting_it_reports_the_reason(self, selector: str) -> None:
        with pytest.raises(
            DeviceUnavailableError, match=rf"pthread-new \(.*{_OLD_COMPILER}; .*install a newer version"
        ):
            discovery.select(selector)


def test_other_devices_stay(
    found: discovery.OpenCLDevice, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their indices have no gap, and names that match both select the usable one."""
    broken = listed(name=f"{found.info.name} new")
    devices = [(_PLATFORM, broken), (found.cl.platform, found.cl)]
    monkeypatch.setattr(discovery, "_listed", lambda: (devices, []))
    assert [d.info.selector for d in discovery.devices()] == ["0"]
    assert discovery.select(found.info.name).cl == found.cl
    with pytest.raises(DeviceUnavailableError, match="cannot be used"):
        discovery.select(broken.name)
    with pytest.raises(DeviceUnavailableError, match="the devices are 0 = "):
        discovery.select("1")


class _Failing:
    """A platform or device whose driver fails all queries but its name."""

    name = "A failing driver"
    version = "OpenCL 3.0 "
    driver_version = "1"

    def __getattr__(self, name: str) -> Any:
        raise cl.LogicError(cl._cl._ErrorRecord("no answer", cl.status_code.INVALID_DEVICE, name))


def test_a_failing_driver_does_not_hide_others(found: discovery.OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    half = SimpleNamespace(name="Half", get_devices=lambda: [_Failing()])
    monkeypatch.setattr(cl, "get_platforms", lambda: [_Failing(), half, found.cl.platform])
    assert found.cl in [d.cl for d in discovery.devices()]
    refused = [d for d in discovery.probe() if isinstance(d, UnusableDevice)]
    assert {"A failing driver", "A failing driver (Half 1)"} <= {d.name for d in refused}
    assert all("fails to describe it" in d.reason for d in refused if d.name.startswith("A failing"))
