"""Builds of exported C projects, and runs of them on files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

COMPILER = shutil.which("gcc") or shutil.which("clang")
CMAKE = shutil.which("cmake")
_WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")
_RUNNER = Path(__file__).with_name("run_step.c")
_DRIVERS = ("intelocl", "pocl", "LLVM", "usticlOpenCL", "MesaOpenCL", "libOpenCL", "libtbb", "ld-linux")
"""Libraries that never release some of their memory. Leaks of the runtime itself have none of them on their stacks."""


def build(folder: Path, *, prefix: str = "step", optimize: str = "-O0", main: Path = _RUNNER) -> Path:
    """Compile a project with the tests' program, warnings as errors and sanitizers. Returns the program."""
    assert COMPILER is not None
    program = folder / "run_step"
    sources = [str(folder / f"{prefix}.c"), *map(str, sorted((folder / "runtime").glob("*.c"))), str(main)]
    definitions = [
        f"-DPOLYHAL_PROGRAM={prefix}_program",
        f'-DSTEP_FOLDER="{folder}"',
        f"-I{folder}",
        f"-I{folder}/runtime",
    ]
    _checked([COMPILER, optimize, *_WARNINGS, *_SANITIZERS, *definitions, *sources, "-o", str(program), "-ldl", "-lm"])
    return program


def build_by_cmake(folder: Path) -> Path:
    """Build a project as its user does, with warnings as errors. Returns the example."""
    assert CMAKE is not None
    _checked([CMAKE, "-S", str(folder), "-B", str(folder / "build"), "-DSTEP_WARNINGS=ON"])
    _checked([CMAKE, "--build", str(folder / "build")])
    return folder / "build" / "step_example"


def run(
    program: Path,
    inputs: Sequence[Sequence[np.ndarray]],
    *,
    device: str = "",
    load: Path | None = None,
    save: Path | None = None,
    environment: dict[str, str] | None = None,
) -> tuple[int, str, bytes]:
    """Run a program once for each list of inputs. Returns its exit code, its messages, and the bytes of all outputs."""
    folder = program.parent
    given, made = folder / "inputs.bin", folder / "outputs.bin"
    made.unlink(missing_ok=True)
    given.write_bytes(b"".join(x.tobytes() for one in inputs for x in one))
    arguments = [device, str(len(inputs)), str(given), str(made), str(load or ""), str(save or "")]
    done = subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        env={**sanitized(folder), **(environment or {})},
        timeout=300,
    )
    return done.returncode, done.stderr, made.read_bytes() if made.exists() else b""


def sanitized(folder: Path) -> dict[str, str]:
    """Return the environment of programs with sanitizers; the file of known leaks is written into a folder."""
    suppressions = folder / "leaks.txt"
    suppressions.write_text("".join(f"leak:{name}\n" for name in _DRIVERS))
    leaks = f"suppressions={suppressions}:print_suppressions=0"
    return {**os.environ, "LSAN_OPTIONS": leaks, "ASAN_OPTIONS": "malloc_context_size=6"}


def _checked(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr, done.stderr
