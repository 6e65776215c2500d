"""The user's source line behind the current call, for messages."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import Path


def user_line() -> str:
    """The innermost line outside of this library, as "file:line: source"."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_internal(file):
            return f"{file}:{frame.f_lineno}: {linecache.getline(file, frame.f_lineno).strip()}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "unknown line"


@lru_cache(1024)
def _is_internal(file: str) -> bool:
    """Whether code belongs to this library, or to no file at all."""
    return file.startswith("<") or str(Path(file).resolve()).startswith(_roots())


@lru_cache(1)
def _roots() -> tuple[str, ...]:
    """The library's folders; `hal` may be in another place than the package that contains it."""
    modules = (sys.modules.get(name) for name in ("polyhal", "polyhal.hal"))
    return tuple(str(Path(m.__file__).resolve().parent) for m in modules if m is not None and m.__file__)
