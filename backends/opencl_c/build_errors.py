"""Build errors of kernels, explained with the source lines that the compiler rejects.

Programs are assembled from several files, so the compiler's line numbers are translated back to file names and lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.hal.errors import KernelBuildError, message

_CONTEXT_LINES = 4
_LINE = re.compile(r":(\d+):\d+")
_NOISE = re.compile(r"clBuildProgram failed|Build on <|Compilation (started|failed)|\(options: |\(source saved")
"""Beginnings of lines that pyopencl and drivers add to the output of the compiler."""


def build_error(
    sources: SourceFolder, label: str, text: str, flags: Sequence[str], log: str, device: str, remedy: str = ""
) -> KernelBuildError:
    """Return the error for the program `text`; `label` is the file that it was assembled from, or any other name.

    The message shows options, numbered source lines and the log, and whether the user has changed one of the files.
    `remedy` replaces the general advice, for logs that the caller knows.
    """
    is_file = label in sources.names()
    changed = sorted(part for part in sources.closure(label) if sources.is_replaced(part)) if is_file else []
    fix = "report this with the log below: it names a driver's limit or our mistake"
    if not is_file:
        fix = "mend the line that is marked below"
    elif changed:
        fix = f"mend {' and '.join(changed)}, which you have changed; the log below says what is wrong"
    output = _without_noise(log)
    problem = message(label, "the driver refused the kernel", fix=remedy or fix, device=device)
    origins = _origins(sources, label, text) if is_file else {}
    excerpt = _excerpt(text.split("\n"), origins, output, "generated" if is_file else label)
    return KernelBuildError(f"{problem}\noptions: {' '.join(flags)}\nsource:\n{excerpt}\nlog:\n{output}")


def _origins(sources: SourceFolder, label: str, text: str) -> dict[int, tuple[str, int]]:
    """Return file and line number for each line of the program that comes from a file; lines count from 1.

    Empty for a program that is no longer source, such as PTX.
    """
    start = text.find(sources.before_kernels(label))
    return dict(enumerate(sources.origins(label), text[:start].count("\n") + 1)) if start >= 0 else {}


def _excerpt(lines: Sequence[str], origins: dict[int, tuple[str, int]], output: str, label: str) -> str:
    """Return the lines around the first line that the output mentions; lines without an origin show `label`."""
    match = _LINE.search(output)
    centre = min(int(match.group(1)) if match else 1, len(lines))
    shown = []
    for n in range(max(1, centre - _CONTEXT_LINES), min(len(lines), centre + _CONTEXT_LINES) + 1):
        file, number = origins.get(n, (label, n))
        shown.append(f"{'>' if n == centre else ' '} {file}:{number:<4d} | {lines[n - 1]}")
    return "\n".join(shown)


def _without_noise(log: str) -> str:
    """Return the compiler's own lines, or the whole log if it has no others."""
    lines = [line for line in log.splitlines() if line.strip() and not _NOISE.match(line)]
    return "\n".join(lines) or log.strip()
