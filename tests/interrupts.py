"""Interrupts of running Python code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupted_at(line: int, work: Callable[[], object], *files: str) -> KeyboardInterrupt | None:
    """Run `work` with a KeyboardInterrupt at the line of this number, counted over the lines of `files` as they first run.

    Returns the exception, which keeps all frames alive as a notebook does; None if fewer lines ran. Finalizers are left out,
    because Python ignores their exceptions.
    """
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in files or frame.f_code.co_name == "__del__":
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.settrace(before)
    return None
