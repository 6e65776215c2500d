"""Where outside this library the current call comes from, for messages."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import Path


def user_line() -> str:
    """The innermost line that is not this library's: "file:line: source"."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_own(file):
            return f"{file}:{frame.f_lineno}: {linecache.getline(file, frame.f_lineno).strip()}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "unknown line"


@lru_cache(1024)
def _is_own(file: str) -> bool:
    """Whether a file is part of this library, or no file at all."""
    return file.startswith("<") or str(Path(file).resolve()).startswith(_roots())


@lru_cache(1)
def _roots() -> tuple[str, ...]:
    """The library's folders; `hal` may lie elsewhere than the package that contains it."""
    found = (sys.modules.get(name) for name in ("polyhal", "polyhal.hal"))
    return tuple(str(Path(m.__file__).resolve().parent) for m in found if m is not None and m.__file__)
