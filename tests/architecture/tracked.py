"""The files that git tracks: lines by area, repeated text, and the subjects of commits."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path, PurePosixPath

AREAS: dict[str, Callable[[PurePosixPath], bool]] = {
    "hal/ops": lambda p: _python(p, "hal/ops"),
    "hal, rest": lambda p: _python(p, "hal") and not _within(p, "hal/ops"),
    "backends": lambda p: _python(p, "backends"),
    "kernels, OpenCL": lambda p: _within(p, "shaders/opencl"),
    "kernels, WGSL": lambda p: _within(p, "shaders/wgsl"),
    "frontend": lambda p: _python(p, "frontend"),
    "applications": lambda p: _python(p, "apps"),
    "plug-ins of the examples": lambda p: _within(p, "examples/plugins"),
    "tests": lambda p: _python(p, "tests"),
    "benchmarks": lambda p: _python(p, "benchmarks"),
    "TOML": lambda p: p.suffix == ".toml",
    "Markdown": lambda p: p.suffix == ".md",
    "JSON": lambda p: p.suffix == ".json",
}
"""Predicates of paths, by the name of an area."""
_WINDOW = 6
"""Lines of a repeated text."""


def _within(path: PurePosixPath, folder: str) -> bool:
    return path.is_relative_to(folder)


def _python(path: PurePosixPath, folder: str) -> bool:
    return path.suffix == ".py" and _within(path, folder)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout


@cache
def tracked_lines(root: Path) -> dict[PurePosixPath, int]:
    """Return the lines of every tracked file; binary files are left out."""
    lines = {}
    for name in _git(root, "ls-files").splitlines():
        content = (root / name).read_bytes() if (root / name).is_file() else b"\0"
        if b"\0" not in content:
            lines[PurePosixPath(name)] = content.count(b"\n")
    return lines


def commit_subjects(root: Path) -> list[str]:
    """Return the subjects of all commits."""
    return _git(root, "log", "--format=%s").splitlines()


def repeated_share(texts: Iterable[str]) -> float:
    """Return the share of lines inside a window of lines that occurs more than once, imports and blank lines left out."""
    files = [_significant(text) for text in texts]
    windows = Counter(tuple(f[i : i + _WINDOW]) for f in files for i in range(len(f) - _WINDOW + 1))
    repeated = 0
    for f in files:
        inside = [False] * len(f)
        for i in range(len(f) - _WINDOW + 1):
            if windows[tuple(f[i : i + _WINDOW])] > 1:
                inside[i : i + _WINDOW] = [True] * _WINDOW
        repeated += sum(inside)
    return repeated / max(1, sum(map(len, files)))


def _significant(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("import ", "from ", "#"))]
