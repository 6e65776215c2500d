"""The user's source line behind the current call, for messages."""

from __future__ import annotations

import linecache
import sys
from types import FrameType

_LIBRARIES = frozenset({"polyhal", "polyhal_autoload", "contextlib", "functools", "torch"})
"""Packages with lines that are not a user's; `contextlib` and `functools` call the library's contexts and cached properties,
and PyTorch calls its kernels."""


def user_line() -> str:
    """The innermost line outside of this library and of PyTorch, as "file:line: source"."""
    file, line = user_position()
    return line_text(file, line) if file else "unknown line"


def user_position() -> tuple[str, int]:
    """File and number of the innermost line outside of this library and of PyTorch; ("", 0) if there is none."""
    frame = sys._getframe(1)
    while is_in_library(frame):
        if frame.f_back is None:
            return "", 0
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def line_text(file: str, line: int) -> str:
    """A line of a file, as "file:line: source"."""
    return f"{file}:{line}: {linecache.getline(file, line).strip()}"


def is_in_library(frame: FrameType) -> bool:
    """Return whether code is not a user's: by its module, because packages of one library may be in several folders."""
    module = frame.f_globals.get("__name__") or ""
    return module.partition(".")[0] in _LIBRARIES or frame.f_code.co_filename.startswith("<")
