"""Programs of the CUDA backend: PTX and machine code on disk, with and without a compiler."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation
from emulated_processor import Processor
from emulated_programs import EmulatedCompiler

from polyhal.backends.cuda import discovery, programs
from polyhal.backends.cuda.backend import CudaBackend
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM
from polyhal.hal import dtypes
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.layout import Ref, contiguous

_TEXT = "__kernel void f(__global float *x) { x[get_global_id(0)] += 1.0f; }"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, for one test."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    return tmp_path / "cuda"


def stored(cache: Path, folder: str) -> Path:
    """Return the only entry of a folder."""
    (file,) = (cache / folder).glob("*.bin")
    return file


def replace(file: Path, payload: bytes) -> None:
    """Store other bytes as an intact entry."""
    file.write_bytes(b"PHC1" + hashlib.sha256(payload).digest() + payload)


def without_compiler(emulation: Emulation) -> CudaBackend:
    """Return a new backend of a machine that has no compiler."""
    device = discovery.ListedDevice(emulation.driver, 0, discovery.describe(emulation.driver, 0), None)
    return CudaBackend(device, features=emulation.backend.features)


def test_a_program_is_compiled_and_assembled_once(emulation: Emulation, cache: Path) -> None:
    first = emulation.backend.runtime.programs
    first.build("f.cl", _TEXT)
    assert (emulation.compiler.compilations, first.compilations) == (1, 1)
    second = emulation.open().runtime.programs
    with emulation.library.logged() as calls:
        second.build("f.cl", _TEXT)
    assert (emulation.compiler.compilations, second.compilations) == (1, 0)
    assert "cuLinkCreate_v2" not in calls
    assert [b.compiled for b in second.program_builds] == [False]


def test_a_program_that_moves_registers_is_not_linked(emulation: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The linker's relocatable code would ignore `setmaxnreg`."""
    monkeypatch.setattr(programs, "_MOVES_REGISTERS", b".entry")
    with emulation.library.logged() as calls:
        emulation.backend.runtime.programs.build("f.cl", _TEXT).kernel("f")
        emulation.open().runtime.programs.build("f.cl", _TEXT).kernel("f")
    assert emulation.compiler.compilations == 1
    assert "cuLinkCreate_v2" not in calls


def test_a_whole_program_is_another_program_and_not_linked(emulation: Emulation, cache: Path) -> None:
    with emulation.library.logged() as calls:
        emulation.backend.runtime.programs.build("f.cl", _TEXT, target=WHOLE_PROGRAM).kernel("f")
        emulation.open().runtime.programs.build("f.cl", _TEXT, target=WHOLE_PROGRAM).kernel("f")
    assert "cuLinkCreate_v2" not in calls
    with emulation.library.logged() as calls:
        emulation.open().runtime.programs.build("f.cl", _TEXT)
    assert "cuLinkCreate_v2" in calls
    assert len(list((cache / "programs").glob("*.bin"))) == 2


def test_stored_ptx_serves_another_version_of_the_driver(emulation: Emulation, cores: Processor, cache: Path) -> None:
    emulation.backend.runtime.programs.build("f.cl", _TEXT)
    newer = Emulation(cores, version=13000)
    with newer.library.logged() as calls:
        newer.backend.runtime.programs.build("f.cl", _TEXT)
    assert newer.compiler.compilations == 0
    assert "cuLinkComplete" in calls
    assert len(list((cache / "programs").glob("*.bin"))) == 2


def test_stored_ptx_runs_without_a_compiler(emulation: Emulation, cache: Path) -> None:
    spec = contiguous(dtypes.float32, (8,))
    ref = Ref(emulation.backend.allocate(spec.nbytes), spec, 0)
    emulation.backend.fill(2.0, ref)
    for file in (cache / "programs").glob("*.bin"):
        file.unlink()
    backend = without_compiler(emulation)
    out = Ref(backend.allocate(spec.nbytes), spec, 0)
    backend.fill(3.0, out)
    result = np.zeros(8, np.float32)
    backend.copy_from_device(out.handle, 0, memoryview(result.view(np.uint8)))
    assert (result == 3).all()
    with pytest.raises(KernelBuildError, match=r"not in the program cache, and there is no compiler.*copy the folder"):
        backend.unary("sqrt", out, out)


@pytest.mark.parametrize("damage", [b"PHC1 torn", b"", b"PHC1" + bytes(40)], ids=["torn", "empty", "altered"])
@pytest.mark.parametrize("folder", ["ptx", "programs"])
def test_damaged_entries_are_made_again(emulation: Emulation, cache: Path, folder: str, damage: bytes) -> None:
    emulation.backend.runtime.programs.build("f.cl", _TEXT)
    stored(cache, folder).write_bytes(damage)
    if folder == "ptx":
        stored(cache, "programs").unlink()
    made = []
    for _ in range(2):
        programs = emulation.open().runtime.programs
        programs.build("f.cl", _TEXT).kernel("f")
        made.append(programs.compilations)
    assert made == [1, 0]
    assert emulation.compiler.compilations == (2 if folder == "ptx" else 1)


@pytest.mark.parametrize("code", [b"not an image", b"{}\nnot machine code", b"[1, 2", b"{}\n\x7fELF sm_70 3\nabc"])
def test_machine_code_that_the_driver_refuses_is_made_again(emulation: Emulation, cache: Path, code: bytes) -> None:
    emulation.backend.runtime.programs.build("f.cl", _TEXT)
    replace(stored(cache, "programs"), code)
    programs = emulation.open().runtime.programs
    programs.build("f.cl", _TEXT).kernel("f")
    assert (programs.compilations, emulation.compiler.compilations) == (1, 1)


def test_ptx_that_the_driver_refuses_is_compiled_again(emulation: Emulation, cache: Path) -> None:
    """As after the return to an older driver, which does not know the version of the stored PTX."""
    emulation.backend.runtime.programs.build("f.cl", _TEXT)
    replace(stored(cache, "ptx"), b".version 99.0\n.target sm_999\n")
    stored(cache, "programs").unlink()
    with pytest.raises(KernelBuildError, match="refused"):
        without_compiler(emulation).runtime.programs.build("f.cl", _TEXT)
    emulation.open().runtime.programs.build("f.cl", _TEXT).kernel("f")
    assert emulation.compiler.compilations == 2
    assert stored(cache, "ptx").stat().st_size > 500


def test_without_a_cache_every_backend_compiles(
    emulation: Emulation, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_NO_PROGRAM_CACHE", "1")
    for _ in range(2):
        emulation.open().runtime.programs.build("f.cl", _TEXT).kernel("f")
    assert emulation.compiler.compilations == 2
    assert not cache.exists()


def test_the_assemblers_log_is_part_of_the_error(
    emulation: Emulation, cores: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = EmulatedCompiler(cores, architecture="sm_70")
    with pytest.raises(KernelBuildError, match=r"(?s)refused the kernel.*the PTX is for sm_70"):
        emulation.open(compiler=compiler).runtime.programs.build("f.cl", _TEXT)


def test_modules_are_unloaded_with_their_last_kernel(emulation: Emulation) -> None:
    live: Any = emulation.library.machine.handles.live
    program = emulation.backend.runtime.programs.build("f.cl", _TEXT)
    kernel = program.kernel("f")
    before = len(live("CUmodule"))
    del program
    assert len(live("CUmodule")) == before
    del kernel
    assert len(live("CUmodule")) == before - 1


def test_a_kernel_that_the_program_lacks(emulation: Emulation) -> None:
    program = emulation.backend.runtime.programs.build("f.cl", _TEXT)
    with pytest.raises(Exception, match=r"loading the kernel g failed with CUDA_ERROR_NOT_FOUND"):
        program.kernel("g")


def test_figures_of_kernels(emulation: Emulation) -> None:
    spec = contiguous(dtypes.float32, (8,))
    emulation.backend.fill(2.0, Ref(emulation.backend.allocate(spec.nbytes), spec, 0))
    (build,) = emulation.backend.kernels.program_builds
    (figures,) = emulation.backend.kernels.statistics(build.kernel)
    assert figures["max_group_size"] == 1024
    assert figures["registers"] == 32
    assert figures["local_bytes"] == 0
