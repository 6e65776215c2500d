"""The user's source line behind the current call, for messages."""

from __future__ import annotations

import contextlib
import linecache
import sys
from functools import lru_cache
from pathlib import Path


def user_line(libraries: tuple[str, ...] = ()) -> str:
    """The innermost line outside of this library and of the folders of other `libraries`, as "file:line: source"."""
    file, line = user_position(libraries)
    return line_text(file, line) if file else "unknown line"


def user_position(libraries: tuple[str, ...] = ()) -> tuple[str, int]:
    """File and number of the innermost line outside of this library and of `libraries`; ("", 0) if there is none."""
    frame = sys._getframe(1)
    while not _is_outside(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(libraries):
        if frame.f_back is None:
            return "", 0
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def line_text(file: str, line: int) -> str:
    """A line of a file, as "file:line: source"."""
    return f"{file}:{line}: {linecache.getline(file, line).strip()}"


@lru_cache(1024)
def _is_outside(file: str) -> bool:
    """Return whether code belongs to a file that is not part of this library."""
    return not file.startswith("<") and not str(Path(file).resolve()).startswith(_roots())


@lru_cache(1)
def _roots() -> tuple[str, ...]:
    """The library's folders, and the file that runs contexts; parts may be in another place than the package around them."""
    modules = (sys.modules.get(name) for name in ("polyhal", "polyhal.hal", "polyhal_autoload"))
    own = (str(Path(m.__file__).resolve().parent) for m in modules if m is not None and m.__file__)
    return *own, str(Path(contextlib.__file__).resolve())
