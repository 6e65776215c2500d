"""The user's source line behind the current call, for messages."""

from __future__ import annotations

import linecache
import sys
from types import FrameType

_LIBRARIES = frozenset({"polyhal", "polyhal_autoload", "contextlib", "functools"})
"""Packages whose lines are not a user's; `contextlib` and `functools` call the library's contexts and cached properties."""


def user_line(libraries: tuple[str, ...] = ()) -> str:
    """The innermost line outside of this library and of the folders of other `libraries`, as "file:line: source"."""
    file, line = user_position(libraries)
    return line_text(file, line) if file else "unknown line"


def user_position(libraries: tuple[str, ...] = ()) -> tuple[str, int]:
    """File and number of the innermost line outside of this library and of `libraries`; ("", 0) if there is none."""
    frame = sys._getframe(1)
    while _is_inside(frame) or frame.f_code.co_filename.startswith(libraries):
        if frame.f_back is None:
            return "", 0
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def line_text(file: str, line: int) -> str:
    """A line of a file, as "file:line: source"."""
    return f"{file}:{line}: {linecache.getline(file, line).strip()}"


def _is_inside(frame: FrameType) -> bool:
    """Return whether code belongs to this library: by its module, because packages of one library may be in several folders."""
    module = frame.f_globals.get("__name__") or ""
    return module.partition(".")[0] in _LIBRARIES or frame.f_code.co_filename.startswith("<")
