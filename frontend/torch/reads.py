"""Numbers that a recorded function reads from tensors of the device, while Python runs it.

A number that Python reads can be a part of a recording if it stays the same from call to call. So it is compared with the
number that the last call read at this place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from polyhal.hal.core.execution.user_line import user_position

_MOST_OTHERS = 2
"""Number of recordings of a function in which a number may differ from the last call, and may still repeat later."""


class Reads:
    """Numbers that the calls of one function read."""

    def __init__(self) -> None:
        self._last: dict[Any, list[Any]] = {}
        """Numbers of the last complete call in Python, in order for each line of the program that read some."""
        self._now: dict[Any, list[Any]] = {}
        """Numbers of this call so far."""
        self._others = 0

    @property
    def next(self) -> list[Any]:
        """The number that the last call read where this call reads the next one; empty if it read fewer numbers there.

        Lines are counted separately: libraries skip checks that read numbers while a step is recorded.
        """
        line = user_position()
        return self._last.get(line, [])[len(self._now.get(line, ())) :][:1]

    def note(self, number: Any) -> None:
        """Note a number that this call reads."""
        self._now.setdefault(user_position(), []).append(number)

    def note_other(self) -> bool:
        """Note that a number differs from the last call. Returns whether it may stay the same from now on."""
        self._others += 1
        return self._others <= _MOST_OTHERS

    @contextmanager
    def call(self) -> Iterator[None]:
        """Keep the numbers that this thread reads in a call."""
        self._last, self._now = self._now, {}
        before, _thread.reads = _thread.reads, self
        try:
            yield
        finally:
            _thread.reads = before


class _Thread(threading.local):
    reads: Reads | None = None


_thread = _Thread()


def note(number: complex | float) -> None:
    """Note a number that the program reads. No-op outside of recorded functions."""
    if _thread.reads is not None:
        _thread.reads.note(number)
