"""Vendors' offline compilers: registers, memory and occupancy of a program, without a device.

The figures of each program are kept in the cache folder, for the same text, options and compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from polyhal.backends.common.described.offline_tools import CompilerRefusalError, find, kept, refusal
from polyhal.backends.opencl import install_hints
from polyhal.backends.opencl.described import clang, ocloc
from polyhal.backends.opencl.described.description import OfflineCompiler
from polyhal.backends.opencl.described.noted_launch import NotedLaunch
from polyhal.hal.errors import BackendError, message

Figures = dict[str, dict[str, int]]
"""Registers, bytes of memory, and concurrent instances, by kernel."""
_TOOLS: dict[str, Callable[[Path, Sequence[str], Sequence[str], str], Figures]] = {
    "clang": clang.compiled,
    "ocloc": ocloc.compiled,
}


def compile_all(
    compiler: OfflineCompiler | None, launches: Iterable[NotedLaunch], device: str
) -> dict[NotedLaunch, dict[str, int]]:
    """Return the figures of each launch's kernel. Programs are compiled in parallel, one per core.

    Raises BackendError with install instructions if there is no compiler, and KernelBuildError if it refuses a program.
    """
    wanted = list(launches)
    executable = _find(compiler, device)
    assert compiler is not None
    texts = {(launch.text, launch.options): launch for launch in wanted}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = pool.map(lambda launch: _figures(executable, compiler, launch, device), texts.values())
        figures = dict(zip(texts, compiled, strict=True))
    return {launch: figures[launch.text, launch.options][launch.kernel] for launch in wanted}


def _find(compiler: OfflineCompiler | None, device: str) -> Path:
    """Return the compiler for a device."""
    if compiler is None:
        problem = "no compiler makes code for this device without it"
        raise BackendError(message(None, problem, fix="choose another described device", device=device))
    if found := find(compiler.tool):
        return found
    fix = install_hints.offline_compiler(compiler.tool)
    raise BackendError(message(None, f"the compiler {compiler.tool} is not installed", fix=fix, device=device))


def _figures(executable: Path, compiler: OfflineCompiler, launch: NotedLaunch, device: str) -> Figures:
    options = [o for o in launch.options if o != "-w"]
    flags = [*compiler.options, *options]

    def compiled() -> Figures:
        try:
            return _TOOLS[compiler.tool](executable, compiler.options, options, launch.text)
        except CompilerRefusalError as error:
            raise refusal(launch.file, executable.name, device, error, flags) from None

    figures: Figures = kept("opencl", [executable], [*flags, launch.text], compiled)
    return figures
