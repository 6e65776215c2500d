"""Memory, transfers, programs and their cache, discovery, profiling and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyhal.backends.common.launching import pinned_ring
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.opencl import discovery, icd, memory, program
from polyhal.backends.opencl.backend import OpenCLBackend, create
from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.errors import DeviceUnavailableError, KernelBuildError, OutOfMemoryError
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Feature, features_of


def test_transfers_through_page_locked_chunks(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a discrete card: transfers exceed all chunks, and the source changes immediately."""
    runtime, chunk = device.backend.runtime, 2**16
    monkeypatch.setattr(runtime, "features", replace(runtime.features, unified_memory=False))
    monkeypatch.setattr(pinned_ring, "_CHUNK", chunk)
    held = memory.OpenCLMemory(runtime)
    data = np.random.default_rng(0).integers(0, 255, 5 * chunk + 3, np.uint8)
    expected = data.copy()
    handle = held.allocate(data.size + 77)
    held.write(memoryview(data), handle, 77)
    data[:] = 0
    back = np.empty(data.size - 10, np.uint8)
    held.read(handle, 82, memoryview(back))
    np.testing.assert_array_equal(back, expected[5:-5])
    held.deallocate(handle)


def test_pinned_memory(device: Any) -> None:
    view = device.backend.allocate_pinned(4096)
    assert view.nbytes == 4096
    assert not view.readonly
    np.frombuffer(view, np.uint8)[:] = 7
    handle = device.backend.allocate(4096)
    event = device.backend.copy_to_device_async(view, handle, 0)
    event.wait()
    assert event.is_complete()
    back = np.empty(4096, np.uint8)
    device.backend.copy_from_device(handle, 0, memoryview(back))
    assert set(back) == {7}


def test_large_blocks_of_cpus_ask_for_huge_pages(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = device.backend.runtime
    if not runtime.features.cpu:
        pytest.skip("memory of the host")
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(memory, "linux_advice", lambda: lambda address, length: asked.append((address, length)))
    small, large = (device.backend.allocate(n) for n in (1 << 20, (5 << 20) + 3))
    ((address, length),) = asked
    assert address % (2 << 20) == 0
    assert length in (2 << 20, 4 << 20)
    for handle in (small, large):
        device.backend.deallocate(handle)


def test_out_of_memory_leaves_the_device_usable(device: Any) -> None:
    before = device.backend.memory_available()
    with pytest.raises(OutOfMemoryError, match="bytes requested"):
        device.backend.allocate(1 << 50)
    assert device.backend.memory_available() == before
    handle = device.backend.allocate(64)
    assert device.backend.memory_available() == before - 64
    device.backend.deallocate(handle)
    assert device.backend.memory_available() == before


def test_build_errors_show_the_line(device: Any) -> None:
    text = "\n".join(
        [f"// line {n}" for n in range(1, 20)] + ["__kernel void f(__global float *x) { x[0] = missing; }"]
    )
    with pytest.raises(KernelBuildError) as caught:
        device.backend.runtime.programs.build("broken.cl", text)
    assert "missing" in str(caught.value)
    assert "broken.cl" in str(caught.value)
    assert "-cl-std" in str(caught.value)


def test_binaries_are_kept_and_damage_is_repaired(found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    text = "__kernel void f(__global float *x) { x[get_global_id(0)] += 1.0f; }"
    builds = []
    for damage in (None, None, b"PHC1 torn", b""):
        programs = OpenCLBackend(found).runtime.programs
        if programs.disk is None:
            pytest.skip("this driver has its own cache")
        if damage is not None:
            (file,) = (tmp_path / "opencl" / "programs").glob("*.bin")
            file.write_bytes(damage)
        programs.build("f.cl", text)
        builds.append(programs.compilations)
    assert builds == [1, 0, 1, 1]


def test_processors_with_other_instruction_sets_have_binaries_of_their_own(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    text = "__kernel void f(__global float *x) { x[get_global_id(0)] -= 1.0f; }"
    builds = []
    for sets in ({"avx2"}, {"avx2", "avx512f"}, {"avx2"}):
        monkeypatch.setattr(program, "instruction_sets", lambda sets=sets: frozenset(sets))
        programs = OpenCLBackend(found).runtime.programs
        programs.build("f.cl", text)
        builds.append(programs.compilations)
    on_processor = OpenCLBackend(found).info.type is DeviceType.CPU
    assert builds == ([1, 1, 0] if on_processor else [1, 0, 0])


def test_cache_survives_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    cache = DiskCache(blocker / "below")
    cache.store("k", b"data")
    assert cache.failure
    assert cache.load("k") is None


def test_cache_is_bounded(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=3000)
    for i in range(10):
        cache.store(f"k{i}", bytes(1000))
        os.utime(tmp_path / f"k{i}.bin", (i, i))
    cache.trim()
    assert cache.load("k9") is not None
    assert cache.load("k0") is None
    assert sum(f.stat().st_size for f in tmp_path.glob("*")) <= 3000


def test_launches_of_ever_changing_shapes_are_bounded(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = device.backend
    monkeypatch.setattr(backend, "_launches", type(backend._launches)())
    monkeypatch.setattr(type(backend._launches), "capacity", 16)
    for n in range(1, 50):
        out = device.empty(dtypes.float32, (n,))
        backend.fill(n, out)
        np.testing.assert_array_equal(device.download(out), np.full(n, n, np.float32))
        assert 0 < len(backend._launches) <= 16


def test_another_number_is_not_another_program(device: Any) -> None:
    x = device.upload(np.ones(100, np.float32))
    for number in (2.5, -7.25):
        before = device.backend.runtime.programs.compilations
        np.testing.assert_array_equal(device.run("multiply", [x, number], dtypes.float32, (100,)), np.full(100, number))
    assert device.backend.runtime.programs.compilations == before


def test_launches_are_named_after_their_kernels(device: Any) -> None:
    """A sequence has the names of all its kernels, each once, and every name leads to a file."""
    x, out = contiguous(dtypes.float32, (8, 40)), contiguous(dtypes.float32, (8,))
    total, positions = contiguous(dtypes.float32, ()), contiguous(dtypes.int64, (8, 40))
    lower = device.backend.lower
    assert lower("softmax", (x,), (x,), {"axis": -1}).name == "rowwise_softmax"
    assert lower("sum_of_squares", (x, out), (total,), {}).name == "squares_of_chunks, total_of_chunks"
    order = {"axis": 1, "descending": False}
    names = lower("sort_pairs", (x,), (x, positions), order).name.split(", ")
    assert len(set(names)) == len(names)
    files = [f for f in device.backend.kernels.names() if f.startswith("sort/")]
    texts = [device.backend.kernels.shipped(f) for f in files]
    assert all(any(f" {name}(" in text for text in texts) for name in names)


def test_every_optional_protocol_but_graphs_is_implemented(device: Any) -> None:
    assert ~features_of(device.backend) == Feature.GRAPHS


def test_devices_are_distinct_and_stable(found: Any) -> None:
    first = [d.info for d in discovery.devices()]
    assert first == [d.info for d in discovery.devices()]
    assert len({d.id for d in first}) == len(first)
    assert [d.selector for d in first] == [str(i) for i in range(len(first))]
    assert all(d.type is DeviceType.CPU for d in first if "pthread" in d.name)


def test_selecting_by_name_and_failing_loudly(found: Any) -> None:
    assert discovery.select(found.platform.split()[0]).platform == found.platform
    assert discovery.select(found.info.id).info == found.info
    with pytest.raises(DeviceUnavailableError, match="the devices are 0 = "):
        create("no such device")
    with pytest.raises(DeviceUnavailableError):
        create("99")


def test_discovery_does_not_import_pyopencl() -> None:
    code = "import sys, polyhal.backends.opencl as b; b.polyhal_backends(); sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a substitute for Intel's library, and an empty cache folder."""
    path = tmp_path / "lib" / "libintelocl.so"
    path.parent.mkdir()
    path.write_bytes(b"")
    monkeypatch.setattr(icd, "packaged_library", lambda: path)
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(icd, "_SYSTEM_FOLDER", tmp_path / "system")
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="drivers are listed in the registry there")
class TestDriverFolder:
    def test_the_machines_own_drivers_stay(self, library: Path, tmp_path: Path) -> None:
        system = tmp_path / "system"
        system.mkdir()
        (system / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
        (system / "wheel.icd").write_text("/nowhere/libintelocl.so")
        setup = icd.prepare()
        texts = {f.name: f.read_text() for f in Path(setup.folder).glob("*.icd")}
        assert texts == {"nvidia.icd": "libnvidia-opencl.so.1", "polyhal-intel-cpu.icd": str(library)}
        assert os.environ["OCL_ICD_VENDORS"] == setup.folder
        assert icd.prepare().folder == setup.folder

    def test_a_folder_of_the_user_is_extended(
        self, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = tmp_path / "own"
        own.mkdir()
        (own / "a.icd").write_text("liba.so")
        monkeypatch.setenv("OCL_ICD_VENDORS", str(own))
        assert (Path(icd.prepare().folder) / "a.icd").read_text() == "liba.so"
        assert [f.name for f in own.iterdir()] == ["a.icd"]

    def test_a_single_driver_of_the_user_is_respected(self, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OCL_ICD_VENDORS", "/some/driver.icd")
        assert "left as it is" in icd.prepare().note
        assert os.environ["OCL_ICD_VENDORS"] == "/some/driver.icd"

    def test_a_cache_that_cannot_be_written(
        self, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "cache").write_text("not a folder")
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        folder = Path(icd.prepare().folder)
        assert (folder / "polyhal-intel-cpu.icd").read_text() == str(library)
        assert not folder.is_relative_to(tmp_path / "cache")


def test_no_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    monkeypatch.setattr(cl, "get_platforms", list)
    with pytest.raises(RuntimeError, match=r'pip install "polyhal\[cpu\]"'):
        discovery.probe()
