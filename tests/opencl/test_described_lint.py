"""Programs of described devices under stricter compilers than drivers: clang without extensions, and SPIR-V.

One program of each kernel file; `make vendors` compiles every program, also with vendors' compilers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.backends.opencl.described.noted_launch import NotedLaunch
from polyhal.cli.workers.build_workloads import all_workloads
from polyhal.hal.device import Device
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.testing.tuning.kernel_check import lower_samples

pytestmark = pytest.mark.slow

ALL = bool(os.environ.get("POLYHAL_TEST_ALL"))
BARE, SUBGROUPS = "bare12", "irisxe"
KEYS = description.known() if ALL else [BARE, SUBGROUPS]
WITH_COMPILERS = ("rx480", "vega20", "rx6800", "uhd630", "irisxe", "a770")
"""Devices that Debian 12's compilers support."""
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
UNUSED = ["function", "parameter", "variable", "but-set-variable"]
"""Kinds of declarations that only some variants of a kernel use."""
CONSTANT = ["-Wno-constant-logical-operand", "-Wno-ignored-pragmas"]
"""Warnings about conditions that a definition decides, and about pragmas of extensions that clang does not need."""


def tool(name: str) -> str:
    """Return a program, or its newest version, such as clang-19. Skips the test without it, unless all tests must run."""
    versions = sorted(
        (
            f.name
            for path in os.get_exec_path()
            for f in Path(path).glob(f"{name}-*")
            if re.fullmatch(rf"{name}-\d+", f.name)
        ),
        key=lambda n: -int(n.rpartition("-")[2]),
    )
    for found in (name, *versions):
        if shutil.which(found):
            return found
    if ALL:
        pytest.fail(f"{name} is not installed (Debian, Ubuntu: apt install clang llvm-spirv-15 spirv-tools)")
    pytest.skip(f"{name} is not installed")


def programs(key: str) -> tuple[list[NotedLaunch], str]:
    """Return the programs that the samples of ops need on a device, and clang's option for the device's extensions."""
    backend = OpenCLDescribedBackend(description.load(key))
    device = Device.opened(f"described:{key}", backend)
    for op in OPS:
        lower_samples(device, op)
    found: dict[tuple[object, ...], NotedLaunch] = {}
    for launch in backend.kernels.launches:
        found.setdefault((launch.text if ALL else launch.file, launch.options), launch)
    names = [n for n in backend.description.device.extensions.split() if n.startswith("cl_khr") and "image" not in n]
    if "cl_khr_fp64" in names:
        names.append("__opencl_c_fp64")  # OpenCL C 3.0's name of the extension: clang requires both or none
    return list(found.values()), ",".join(["-cl-ext=-all", *(f"+{n}" for n in names)])


def run(*command: str, text: str | bytes = "") -> bytes:
    """Return the standard output of a program. Raises AssertionError with its messages if it fails."""
    given = text.encode() if isinstance(text, str) else text
    done = subprocess.run(command, input=given, capture_output=True, timeout=300, check=False)
    assert not done.returncode, (done.stderr + done.stdout).decode(errors="replace")[-2000:]
    return done.stdout


def problems(launches: list[NotedLaunch], check: object) -> Iterator[str]:
    """Return the problem of each program that a check refuses."""

    def one(launch: NotedLaunch) -> str:
        try:
            check(launch)  # type: ignore[operator]
        except AssertionError as error:
            return f"{launch.file} {dict(launch.definitions)}: {error}"
        return ""

    with ThreadPoolExecutor(2) as pool:
        yield from filter(None, pool.map(one, launches))


@pytest.mark.parametrize("key", KEYS)
def test_clang_accepts_programs_without_warnings(key: str) -> None:
    clang = tool("clang")
    launches, extensions = programs(key)
    options = [*STRICT, *(f"-Wno-unused-{what}" for what in UNUSED), *CONSTANT]

    def check(launch: NotedLaunch) -> None:
        own = [o for o in launch.options if o != "-w"]
        run(
            clang,
            "-x",
            "cl",
            *own,
            "--target=spir64-unknown-unknown",
            "-Xclang",
            extensions,
            "-Xclang",
            "-finclude-default-header",
            *options,
            "-fsyntax-only",
            "-",
            text=launch.text,
        )

    assert len(launches) > 40
    assert list(problems(launches, check)) == []


def test_extensions_and_warnings_are_found() -> None:
    clang = tool("clang")
    _, extensions = programs(BARE)
    for text in ("kernel void k(global double *x) { *x *= 2; }", "kernel void k(global int *x) { *x == 1; }"):
        with pytest.raises(AssertionError, match="error:"):
            run(
                clang,
                "-x",
                "cl",
                "-cl-std=CL1.2",
                "--target=spir64-unknown-unknown",
                "-Xclang",
                extensions,
                *STRICT,
                "-fsyntax-only",
                "-",
                text=text,
            )


@pytest.mark.parametrize("key", KEYS)
def test_programs_are_valid_spirv(key: str, tmp_path: Path) -> None:
    translate, validate = tool("llvm-spirv"), tool("spirv-val")
    # Only tools of the same version read LLVM's bitcode.
    clang = translate.replace("llvm-spirv", "clang")
    if not shutil.which(clang):
        clang = tool("clang")
    launches = [launch for launch in programs(key)[0] if "-cl-std=CL1.2" in launch.options]
    places = {launch: tmp_path / f"{n}.spv" for n, launch in enumerate(launches)}

    def check(launch: NotedLaunch) -> None:
        # Without optimizations, as in drivers: SPIR-V cannot express some optimized programs.
        made = run(
            clang,
            "-x",
            "cl",
            *launch.options,
            "--target=spir64-unknown-unknown",
            "-Xclang",
            "-finclude-default-header",
            "-O1",
            "-Xclang",
            "-disable-llvm-passes",
            "-emit-llvm",
            "-c",
            "-o",
            "-",
            "-",
            text=launch.text,
        )
        run(translate, "--spirv-max-version=1.2", "-", "-o", str(places[launch]), text=made)
        run(validate, "--target-env", "opencl1.2", str(places[launch]))

    assert len(launches) > 40
    assert list(problems(launches, check)) == []


@pytest.mark.skipif(not ALL, reason="minutes for each device: make vendors")
@pytest.mark.parametrize("key", WITH_COMPILERS)
def test_compilers_of_vendors_accept_training_steps(key: str) -> None:
    backend = OpenCLDescribedBackend(description.load(key))
    device = Device.opened(f"described:{key}", backend)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*only described")
        for name, workload in all_workloads().items():
            if name != "used":
                workload(device)
    rows = [
        row for file in {b.kernel for b in backend.kernels.program_builds} for row in backend.kernels.statistics(file)
    ]
    assert len(rows) > 150
    most = backend.features.local_memory
    assert [row["kernel"] for row in rows if row["local_bytes"] > most] == []
