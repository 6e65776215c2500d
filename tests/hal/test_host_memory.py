"""Devices that compute in host memory raise an error before the system runs out of memory and kills the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyhal as ph
from polyhal.backends.numpy.backend import create
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.memory.host_memory import HostMemory, HostMemoryGuard
from polyhal.hal.device import Device
from polyhal.hal.errors import OutOfMemoryError

_MIB = 2**20
_GIB = 2**30


def _system(root: Path, groups: str = "", **files: str) -> HostMemory:
    """Return a system with 8 GiB of memory, 6 of them available."""
    contents = {"proc/meminfo": f"MemTotal: {8 * _MIB} kB\nMemFree: {_MIB} kB\nMemAvailable: {6 * _MIB} kB\n"}
    for path, content in {**contents, "proc/self/cgroup": groups, **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return HostMemory(root)


def test_the_available_memory_of_a_machine_is_read(tmp_path: Path) -> None:
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


def test_older_control_groups_are_supported(tmp_path: Path) -> None:
    group = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{_GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{_GIB + 1}\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
    }
    memory = _system(tmp_path, "5:cpu:/x\n4:memory,hugetlb:/docker/3f\n", **group)
    assert memory.total_and_available() == (_GIB, 0)


def test_systems_without_reports_never_reject(tmp_path: Path) -> None:
    memory = HostMemory(tmp_path)
    assert memory.total_and_available() is None
    guard = HostMemoryGuard(memory)
    guard.admit(2**60)
    assert guard.spare() is None


def test_the_system_is_polled_only_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


_MAPPING = "7f00-7f10 {} 00000000 00:00 0\nSize: {} kB\nKernelPageSize: 4 kB\nRss: {} kB\nSwap: 0 kB\n"


def test_memory_that_was_promised_and_not_written_to_is_not_promised_again(tmp_path: Path) -> None:
    """Six of eight GiB are available until four of them are written; polling does not change that."""
    mappings = _MAPPING.format("rw-p", 4 * _MIB, 0) + _MAPPING.format("r--p", 9 * _MIB, 0)
    memory = _system(tmp_path, **{"proc/self/statm": "9 1000 0", "proc/self/smaps": mappings})
    guard = HostMemoryGuard(memory)
    guard.admit(4 * _GIB)
    with pytest.raises(OutOfMemoryError, match="requested, the system can spare"):
        guard.admit(3 * _GIB)
    guard.admit(_GIB)
    guard.forget(5 * _GIB)
    guard.admit(5 * _GIB)


def test_memory_that_was_written_to_is_not_counted_twice(tmp_path: Path) -> None:
    memory = _system(tmp_path, **{"proc/self/statm": "9 1000 0"})
    guard = HostMemoryGuard(memory)
    guard.admit(3 * _GIB)
    (tmp_path / "proc/self/statm").write_text(f"9 {1000 + 3 * _GIB // 4096} 0")  # and other memory was freed
    guard.admit(5 * _GIB)


def test_the_mappings_of_the_process_decide_before_memory_is_refused(tmp_path: Path) -> None:
    """The process does not grow, since it frees as much as it writes: only its mappings show the difference."""
    mappings = _MAPPING.format("rw-p", 4 * _MIB, 4 * _MIB)
    memory = _system(tmp_path, **{"proc/self/statm": "9 1000 0", "proc/self/smaps": mappings})
    guard = HostMemoryGuard(memory)
    guard.admit(4 * _GIB)
    guard.admit(3 * _GIB)


def test_the_memory_of_this_process_is_read() -> None:
    memory = HostMemory()
    if memory.total_and_available() is None:
        pytest.skip("the system does not report it")
    resident, untouched = memory.resident(), memory.untouched()
    big = np.empty(512 * _MIB, np.uint8)
    assert memory.untouched() - untouched > 400 * _MIB
    big[: 256 * _MIB] = 1
    assert memory.resident() - resident > 200 * _MIB
    assert 200 * _MIB < memory.untouched() - untouched < 300 * _MIB


def test_random_numbers_take_little_more_than_their_results(tmp_path: Path) -> None:
    """Random words of half-precision and 8-bit numbers take four bytes each; other temporaries are made in chunks."""
    program = """
import resource, sys
import polyhal as ph
count = 2**24
ph.set_default_device("numpy")
ph.rand(8, dtype="float16"), ph.randint(9, (8,), dtype="int8"), ph.randn(8, dtype="float16")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
ph.rand(count, dtype="float16"), ph.randn(count, dtype="float16")
print((peak() - before) / count)
ph.randint(9, (count,), dtype="int8")
print((peak() - before) / count)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    floats, integers = map(float, result.stdout.split())
    assert floats < 2 * 2 + 6  # two results, and chunks
    assert integers < 2 * 4 + 6


def test_a_device_of_the_host_runs_out_of_memory(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type is not DeviceType.CPU or not device.capabilities.unified_memory:
        pytest.skip("the device has separate memory")
    device.empty_cache()
    monkeypatch.setattr(HostMemory, "total_and_available", lambda self: (_GIB, 100 * _MIB))
    with pytest.raises(OutOfMemoryError, match=r"no memory for 96.00 MiB: .* and 79\.52 MiB are left"):
        ph.empty((24 * _MIB,), device=device)
    monkeypatch.undo()
    assert ph.zeros((24 * _MIB,), device=device)[-1].item() == 0
    device.empty_cache()


def test_other_devices_of_the_host_release_unused_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    hoarding, asking = (Device.opened(name, create("")) for name in ("first", "second"))
    ph.zeros((_MIB,), device=hoarding)
    assert hoarding.memory_stats().reserved == 4 * _MIB

    def total_and_available(memory: HostMemory) -> tuple[int, int]:
        return _GIB, (200 if hoarding.memory_stats().reserved == 0 else 50) * _MIB

    monkeypatch.setattr(HostMemory, "total_and_available", total_and_available)
    assert ph.zeros((24 * _MIB,), device=asking).size == 24 * _MIB
    assert hoarding.memory_stats().reserved == 0
