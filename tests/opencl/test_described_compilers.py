"""Offline compilers: parsing of their output, and errors if one is missing or refuses a program.

The compilers here are scripts that print the output of clang 19 and ocloc 22.43 for kernels of this project.
"""

from __future__ import annotations

import base64
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from polyhal.backends.opencl.described import clang, description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, KernelBuildError
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.testing.tuning.kernel_check import lower_samples

FILE = "rowwise/softmax.cl"
ASSEMBLY = """
\t.amdhsa_kernel rowwise_softmax
\t\t.amdhsa_group_segment_fixed_size 128
\t.end_amdhsa_kernel
; Kernel info:
; Occupancy: 9
amdhsa.kernels:
  - .args:
      - .name:           x
        .size:           8
    .group_segment_fixed_size: 128
    .name:           rowwise_softmax
    .private_segment_fixed_size: 16
    .sgpr_count:     28
    .symbol:         rowwise_softmax.kd
    .vgpr_count:     79
    .vgpr_spill_count: 3
amdhsa.target:   amdgcn-amd-amdhsa--gfx1030
"""
INFO = """---
version:         '1.24'
kernels:
  - name:            rowwise_softmax
    execution_env:
      barrier_count:   1
      simd_size:       16
      slm_size:        128
    per_thread_memory_buffers:
      - type:            scratch
        usage:           spill_fill_space
        size:            1024
      - type:            global
        usage:           private_space
        size:            512
kernels_misc_info:
  - name:            rowwise_softmax
...
"""
SPILLED = "warning: kernel rowwise_softmax  compiled SIMD16 allocated 128 regs and spilled around 27"


def elf(section: str, content: bytes) -> bytes:
    """Return a 64-bit ELF file with that section and a section for names."""
    names = b"\0.names\0" + section.encode() + b"\0"
    at = 64 + len(names) + len(content)
    headers = [
        (0,) * 10,
        (1, 3, 0, 0, 64, len(names), 0, 0, 1, 0),
        (8, 1, 0, 0, 64 + len(names), len(content), 0, 0, 1, 0),
    ]
    begin = b"\x7fELF\x02\x01\x01".ljust(40, b"\0") + struct.pack("<Q", at) + bytes(10) + struct.pack("<HHH", 64, 3, 1)
    return begin + names + content + b"".join(struct.pack("<IIQQQQIIQQ", *h) for h in headers)


@pytest.fixture
def softmax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a described device that has launched softmax, with scripts in `tmp_path` as compilers."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))

    def opened(key: str) -> OpenCLDescribedBackend:
        backend = OpenCLDescribedBackend(description.load(key))
        lower_samples(Device.opened(f"described:{key}", backend), OPS["softmax"])
        return backend

    return opened


def script(path: Path, code: str) -> None:
    """Write a program that logs its arguments, then runs `code`."""
    note = f"open({str(path)!r} + '.log', 'a').write(' '.join(sys.argv) + chr(10))"
    path.write_text(f"#!{sys.executable}\nimport sys\n{note}\n{code}")
    path.chmod(0o755)


def test_figures_of_clang(softmax: Any, tmp_path: Path) -> None:
    script(tmp_path / "clang-9", "raise SystemExit(9)")
    script(tmp_path / "clang-17", f"sys.stdin.read(); print({ASSEMBLY!r})")  # the newest
    backend = softmax("rx6800")
    rows = backend.kernels.statistics(FILE)
    assert len(rows) == len([launch for launch in backend.kernels.launches if launch.file == FILE]) > 1
    figures = {"registers": 79, "spilled_registers": 3, "private_bytes": 16, "local_bytes": 128, "waves": 9}
    assert all(figures.items() <= row.items() and row["kernel"] == "rowwise_softmax" for row in rows)
    log = tmp_path / "clang-17.log"
    commands = log.read_text().splitlines()
    assert all("-mcpu=gfx1030" in c and "-cl-std=CL" in c for c in commands)
    assert backend.kernels.statistics(FILE) == rows
    assert log.read_text().splitlines() == commands, "figures are kept"
    assert backend.kernels.statistics("gemm/tiles.cl") == []


def test_instructions_of_matrix_units_are_counted(softmax: Any, tmp_path: Path) -> None:
    """A line of assembly may contain two; kernels without matrix instructions lack the figure."""
    body = "\nrowwise_softmax:\n\tv_wmma_f32_16x16x16_f16 v[0:7]\n\tv_dual_dot2acc_f32_f16 v1 :: v_dual_dot2acc_f32_f16 v2\n"
    script(tmp_path / "clang-17", f"sys.stdin.read(); print({body + ASSEMBLY!r})")
    assert {row["matrix_instructions"] for row in softmax("rx6800").kernels.statistics(FILE)} == {3}
    dpas = INFO.replace("      barrier_count:   1", "      barrier_count:   1\n      has_dpas:        true")
    for info, expected in ((dpas, {1}), (INFO, {None})):
        binary = base64.b64encode(elf(".ze_info", info.encode())).decode()
        code = f"import base64, os; os.mkdir('out'); open('out/program', 'wb').write(base64.b64decode({binary!r}))\n"
        script(tmp_path / "ocloc", code)
        assert {row.get("matrix_instructions") for row in softmax("a770").kernels.statistics(FILE)} == expected


@pytest.mark.parametrize(
    "private", ["private_space", "single_space"]
)  # Gen9 has a single space for all memory of a thread
def test_figures_of_ocloc(softmax: Any, tmp_path: Path, private: str) -> None:
    binary = base64.b64encode(elf(".ze_info", INFO.replace("private_space", private).encode())).decode()
    script(
        tmp_path / "ocloc",
        f"import base64, os; os.mkdir('out'); open('out/program', 'wb').write(base64.b64decode({binary!r}))\n"
        f"print({SPILLED!r}); assert '__kernel' in open('program.cl').read()",
    )
    rows = softmax("a770").kernels.statistics(FILE)
    figures = {"lanes": 16, "spilled_registers": 27, "spilled_bytes": 1024, "private_bytes": 512, "local_bytes": 128}
    assert rows
    assert all(figures.items() <= row.items() for row in rows)
    assert "-device acm-g10" in (tmp_path / "ocloc.log").read_text()


@pytest.mark.parametrize(
    ("key", "tool", "package"), [("rx480", "clang", "rocm-device-libs"), ("uhd630", "ocloc", "intel-ocloc")]
)
def test_a_missing_compiler_is_named_with_its_package(softmax: Any, key: str, tool: str, package: str) -> None:
    with pytest.raises(BackendError, match=f"the compiler {tool} is not installed; install .*{package}"):
        softmax(key).kernels.statistics(FILE)


def test_a_device_without_an_offline_compiler_is_an_error(softmax: Any) -> None:
    with pytest.raises(BackendError, match="no compiler makes code for this device"):
        softmax("m1").kernels.statistics(FILE)


@pytest.mark.parametrize(
    ("key", "tool", "code", "said"),
    [
        ("rx480", "clang", "sys.exit('program.cl:3:1: error: unknown type')", "unknown type"),
        ("a770", "ocloc", "sys.exit('cannot get HW Info for device')", "cannot get HW Info"),
        ("a770", "ocloc", "print('made nothing')", "no ELF file was made\nmade nothing"),
    ],
)
def test_a_refusal_shows_the_compilers_message(
    softmax: Any, tmp_path: Path, key: str, tool: str, code: str, said: str
) -> None:
    script(tmp_path / tool, code)
    with pytest.raises(KernelBuildError, match=f"{tool} refuses the kernel") as caught:
        softmax(key).kernels.statistics(FILE)
    assert said in str(caught.value)


def test_a_program_without_kernels_has_no_figures(tmp_path: Path) -> None:
    script(tmp_path / "clang", "print('nothing here')")
    assert clang.compiled(tmp_path / "clang", [], [], "") == {}
