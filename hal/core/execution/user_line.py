"""The user's source line behind the current call, for messages."""

from __future__ import annotations

import linecache
import sys
from types import CodeType, FrameType

_LIBRARIES = frozenset({"polyhal", "polyhal_autoload", "contextlib", "functools", "torch"})
"""Packages with lines that are not a user's; `contextlib` and `functools` call the library's contexts and cached properties,
and PyTorch calls its kernels."""

_KNOWN: dict[int, tuple[CodeType, bool]] = {}
"""Results of `is_in_library` by the code object's identity, which stays its own while it is referenced here."""
_MOST_KNOWN = 10_000


def user_line() -> str:
    """The innermost line outside of this library and of PyTorch, as "file:line: source"."""
    file, line = user_position()
    return line_text(file, line) if file else "unknown line"


def user_position() -> tuple[str, int]:
    """File and number of the innermost line outside of this library and of PyTorch; ("", 0) if there is none."""
    frame: FrameType | None = sys._getframe(1)
    known = _KNOWN.get
    while frame is not None:
        entry = known(id(frame.f_code))
        if not (is_in_library(frame) if entry is None else entry[1]):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def line_text(file: str, line: int) -> str:
    """A line of a file, as "file:line: source"."""
    return f"{file}:{line}: {linecache.getline(file, line).strip()}"


def is_in_library(frame: FrameType) -> bool:
    """Return whether code is not a user's: by its module, because packages of one library may be in several folders."""
    code = frame.f_code
    known = _KNOWN.get(id(code))
    if known is not None:
        return known[1]
    module = frame.f_globals.get("__name__") or ""
    found = module.partition(".")[0] in _LIBRARIES or code.co_filename.startswith("<")
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN[id(code)] = code, found
    return found
