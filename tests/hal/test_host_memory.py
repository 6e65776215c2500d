"""Devices that compute in the host's memory run out of it with an error, before the system ends the process."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyhal as ph
from polyhal.backends.numpy.backend import create
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.device import Device
from polyhal.hal.errors import OutOfMemoryError
from polyhal.hal.memory.host_memory import HostMemory, HostMemoryGuard

_MIB = 2**20
_GIB = 2**30


def _system(root: Path, groups: str = "", **files: str) -> HostMemory:
    """A system with 8 GiB of memory, 6 of them available."""
    contents = {"proc/meminfo": f"MemTotal: {8 * _MIB} kB\nMemFree: {_MIB} kB\nMemAvailable: {6 * _MIB} kB\n"}
    for path, content in {**contents, "proc/self/cgroup": groups, **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return HostMemory(root)


def test_a_machine_says_what_is_available(tmp_path: Path) -> None:
    assert _system(tmp_path).total_and_available() == (8 * _GIB, 6 * _GIB)


def test_a_container_may_have_less(tmp_path: Path) -> None:
    group = {
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.current": "1\n",
        "sys/fs/cgroup/a/memory.max": f"{2 * _GIB}\n",
        "sys/fs/cgroup/a/memory.current": f"{_GIB}\n",
        "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {_GIB // 2}\n",
    }
    assert _system(tmp_path, "0::/a/b\n", **group).total_and_available() == (2 * _GIB, _GIB + _GIB // 2)


def test_older_control_groups_are_understood(tmp_path: Path) -> None:
    group = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{_GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{_GIB + 1}\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
    }
    memory = _system(tmp_path, "5:cpu:/x\n4:memory,hugetlb:/docker/3f\n", **group)
    assert memory.total_and_available() == (_GIB, 0)


def test_systems_that_do_not_say_refuse_nothing(tmp_path: Path) -> None:
    memory = HostMemory(tmp_path)
    assert memory.total_and_available() is None
    guard = HostMemoryGuard(memory)
    guard.admit(2**60)
    assert guard.spare() is None


def test_the_system_is_asked_only_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = _system(tmp_path)
    looks: list[int] = []
    monkeypatch.setattr(memory, "total_and_available", lambda: looks.append(1) or (8 * _GIB, 70 * _MIB))
    guard = HostMemoryGuard(memory)
    for _ in range(63):
        guard.admit(_MIB)
    assert not looks
    with pytest.raises(OutOfMemoryError, match="the system can spare 0"):
        guard.admit(_MIB)
    assert len(looks) == 1


def test_a_device_of_the_host_runs_out_of_memory(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type is not DeviceType.CPU or not device.capabilities.unified_memory:
        pytest.skip("the device has memory of its own")
    device.empty_cache()
    monkeypatch.setattr(HostMemory, "total_and_available", lambda self: (_GIB, 100 * _MIB))
    with pytest.raises(OutOfMemoryError, match=r"no memory for 96.00 MiB: .* and 79\.52 MiB are left"):
        ph.empty((24 * _MIB,), device=device)
    monkeypatch.undo()
    assert ph.zeros((24 * _MIB,), device=device)[-1].item() == 0
    device.empty_cache()


def test_other_devices_of_the_host_give_back_what_they_do_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    hoarding, asking = (Device.opened(name, create("")) for name in ("first", "second"))
    ph.zeros((_MIB,), device=hoarding)
    assert hoarding.memory_stats().reserved == 4 * _MIB

    def total_and_available(memory: HostMemory) -> tuple[int, int]:
        return _GIB, (200 if hoarding.memory_stats().reserved == 0 else 50) * _MIB

    monkeypatch.setattr(HostMemory, "total_and_available", total_and_available)
    assert ph.zeros((24 * _MIB,), device=asking).size == 24 * _MIB
    assert hoarding.memory_stats().reserved == 0
