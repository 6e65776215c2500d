"""Numbers that a recorded function reads from tensors of the device, while Python runs it.

A number that Python reads can be a part of a recording if it stays the same from call to call. So it is compared with the
number that the last call read at this place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MOST_OTHERS = 2
"""Number of recordings of a function in which a number may differ from the last call, and may still repeat later."""


class Reads:
    """Numbers that the calls of one function read."""

    def __init__(self) -> None:
        self.last: list[Any] = []
        """Numbers of the last complete call in Python, in order."""
        self.now: list[Any] = []
        """Numbers of this call so far."""
        self._others = 0

    @property
    def next(self) -> list[Any]:
        """The number that the last call read where this call reads the next one; empty if it read fewer numbers."""
        return self.last[len(self.now) :][:1]

    def note_other(self) -> bool:
        """Note that a number differs from the last call. Returns whether it may stay the same from now on."""
        self._others += 1
        return self._others <= _MOST_OTHERS

    @contextmanager
    def call(self) -> Iterator[None]:
        """Keep the numbers that this thread reads in a call."""
        self.last, self.now = self.now, []
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
        _thread.reads.now.append(number)
