"""Offline compilers of vendors: what their drivers' compilers make of a program, without a device.

The figures of each program are kept in the cache folder, for the same text, options and compiler.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.opencl import install_hints
from polyhal.backends.opencl.described import clang, ocloc
from polyhal.backends.opencl.described.compiler_run import CompilerRefusalError
from polyhal.backends.opencl.described.description import OfflineCompiler
from polyhal.backends.opencl.described.noted_launch import NotedLaunch
from polyhal.hal.errors import BackendError, KernelBuildError, message
from polyhal.hal.settings import env

Figures = dict[str, dict[str, int]]
"""By kernel: registers, bytes of memory, and how many of the kernel run at once."""
_TOOLS: dict[str, Callable[[Path, Sequence[str], Sequence[str], str], Figures]] = {
    "clang": clang.compiled, "ocloc": ocloc.compiled,
}  # fmt: skip
_LOG_LINES = 20


def compile_all(
    compiler: OfflineCompiler | None, launches: Iterable[NotedLaunch], device: str
) -> dict[NotedLaunch, dict[str, int]]:
    """Return the figures of each launch's kernel. Programs are compiled at once, one per core.

    Raises BackendError, with what to install, if there is no compiler, and KernelBuildError if it refuses a program.
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
    """Return the compiler for a device, the newest if several versions are installed."""
    if compiler is None:
        problem = "no compiler makes code for this device without it"
        raise BackendError(message(None, problem, fix="choose another described device", device=device))
    versions = (int(m[1]) for f in _on_path() if (m := re.fullmatch(rf"{compiler.tool}-(\d+)", f)))
    for name in (compiler.tool, *(f"{compiler.tool}-{n}" for n in sorted(versions, reverse=True))):
        if found := shutil.which(name):
            return Path(found)
    fix = install_hints.offline_compiler(compiler.tool)
    raise BackendError(message(None, f"the compiler {compiler.tool} is not installed", fix=fix, device=device))


def _on_path() -> set[str]:
    """Return the names of all files in folders where programs are."""
    folders = (Path(f) for f in os.get_exec_path())
    return {f.name for folder in folders if folder.is_dir() for f in folder.iterdir()}


def _figures(executable: Path, compiler: OfflineCompiler, launch: NotedLaunch, device: str) -> Figures:
    options = [o for o in launch.options if o != "-w"]
    flags = [*compiler.options, *options]
    cache = DiskCache(env.cache_dir() / "opencl" / "offline")
    key = DiskCache.key([*_identity(executable), *flags, launch.text])
    if (stored := cache.load(key)) is not None:
        known: Figures = json.loads(stored)
        return known
    try:
        figures = _TOOLS[compiler.tool](executable, compiler.options, options, launch.text)
    except CompilerRefusalError as error:
        log = "\n".join(str(error).strip().splitlines()[-_LOG_LINES:])
        problem = message(launch.file, f"{executable.name} refuses the kernel", device=device)
        raise KernelBuildError(f"{problem}\noptions: {' '.join(flags)}\nlog:\n{log}") from None
    cache.store(key, json.dumps(figures).encode())
    return figures


def _identity(executable: Path) -> tuple[str, ...]:
    """Return what changes when the compiler does."""
    status = executable.resolve().stat()
    return str(executable.resolve()), str(status.st_size), str(status.st_mtime_ns)
