"""Compilers and validators that do not need a device: lookup, runs, and results cached on disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.hal.core.settings import env
from polyhal.hal.errors import KernelBuildError, message

_TIMEOUT = 300.0
"""Timeout in seconds. The largest kernels take a few seconds."""
_LOG_LINES = 20


class CompilerRefusalError(Exception):
    """A compiler rejected a program; the message is its output."""


def run(executable: Path, arguments: Sequence[str], folder: Path, text: str = "") -> tuple[str, str]:
    """Run a compiler in a folder, with a text on standard input. Return its output, and its messages.

    Raises CompilerRefusalError if it fails, does not start, or exceeds the timeout.
    """
    try:
        done = subprocess.run(
            [str(executable), *arguments],
            input=text,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerRefusalError(str(error)) from error
    if done.returncode:
        raise CompilerRefusalError(done.stderr + done.stdout)
    return done.stdout, done.stderr


def find(tool: str) -> Path | None:
    """Return the path of a program, or of its newest version, such as clang-19. None if it is not installed."""
    versions = (int(m[1]) for f in _on_path() if (m := re.fullmatch(rf"{tool}-(\d+)", f)))
    for name in (tool, *(f"{tool}-{n}" for n in sorted(versions, reverse=True))):
        if found := shutil.which(name):
            return Path(found)
    return None


def kept(backend: str, tools: Iterable[Path], key: Iterable[str], make: Callable[[], Any]) -> Any:
    """Return the result of `make`, cached as JSON by key and by the tools' files."""
    cache = DiskCache(env.cache_dir() / backend / "offline")
    name = DiskCache.key([part for tool in tools for part in _identity(tool)] + list(key))
    if (stored := cache.load(name)) is not None:
        return json.loads(stored)
    made = make()
    cache.store(name, json.dumps(made).encode())
    return made


def refusal(file: str, tool: str, device: str, error: CompilerRefusalError, options: Sequence[str]) -> KernelBuildError:
    """Return the error for a kernel that a tool rejects, with the end of its output."""
    log = "\n".join(str(error).strip().splitlines()[-_LOG_LINES:])
    problem = message(file, f"{tool} refuses the kernel", device=device)
    return KernelBuildError(f"{problem}\noptions: {' '.join(options)}\nlog:\n{log}")


def _on_path() -> set[str]:
    """Return the names of all files in folders of the search path."""
    folders = (Path(f) for f in os.get_exec_path())
    return {f.name for folder in folders if folder.is_dir() for f in folder.iterdir()}


def _identity(executable: Path) -> tuple[str, ...]:
    """Return the identity of a tool's file, which changes with its version."""
    status = executable.resolve().stat()
    return str(executable.resolve()), str(status.st_size), str(status.st_mtime_ns)
