"""Completion signals: words in host memory that the device writes when a command is done, with its start and end time.

A signal is a slot of 32 bytes: state, start and end in nanoseconds, and a value (the CRC-32 of the bytes read by a copy).
Slots are reused when no event refers to them. Slot 0 means "no signal".
"""

from __future__ import annotations

import enum
import mmap
import struct
import threading
from typing import NamedTuple

_SLOT = struct.Struct("<QQQQ")
_PER_PAGE = mmap.PAGESIZE // _SLOT.size


class SignalState(enum.IntEnum):
    """The first word of a slot."""

    PENDING = 0
    DONE = 1


class SignalValue(NamedTuple):
    """State and times of a signal."""

    state: int
    start_ns: int
    end_ns: int
    value: int


class Signals:
    """The signals of one device. Pages are added on demand.

    Freed slots are kept in a list, whose `append` is atomic, because the garbage collector may release events on any
    thread.
    """

    def __init__(self) -> None:
        self._pages: list[mmap.mmap] = []
        self._free: list[int] = []
        self._lock = threading.Lock()

    def acquire(self) -> int:
        """Return a pending signal."""
        with self._lock:
            if not self._free:
                first = len(self._pages) * _PER_PAGE
                self._pages.append(mmap.mmap(-1, mmap.PAGESIZE))
                self._free += range(first + _PER_PAGE - 1, max(first, 1) - 1, -1)
            signal = self._free.pop()
        self._store(signal, SignalValue(SignalState.PENDING, 0, 0, 0))
        return signal

    def release(self, signal: int) -> None:
        """Free the slot for reuse."""
        self._free.append(signal)

    def complete(self, signal: int, start_ns: int, end_ns: int, value: int = 0) -> None:
        """Mark a signal as done."""
        self._store(signal, SignalValue(SignalState.DONE, start_ns, end_ns, value))

    def read(self, signal: int) -> SignalValue:
        """Return the current value of a signal."""
        page, slot = divmod(signal, _PER_PAGE)
        return SignalValue(*_SLOT.unpack_from(self._pages[page], slot * _SLOT.size))

    def is_done(self, signal: int) -> bool:
        """Return whether the command of a signal is done."""
        return self.read(signal).state == SignalState.DONE

    def _store(self, signal: int, completion: SignalValue) -> None:
        page, slot = divmod(signal, _PER_PAGE)
        _SLOT.pack_into(self._pages[page], slot * _SLOT.size, *completion)
