"""Stand-in for `cupy.cuda`: streams, events and pointers."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from cupy.cuda import cublas, driver, memory, runtime

__all__ = [
    "Event",
    "MemoryPointer",
    "Stream",
    "UnownedMemory",
    "alloc_pinned_memory",
    "cublas",
    "driver",
    "memory",
    "runtime",
]

_numbers = itertools.count(1)
_entered = threading.local()


class Stream:
    """Queue of a device, which is always idle."""

    def __init__(self, *, non_blocking: bool) -> None:
        self.ptr = next(_numbers)

    @staticmethod
    def current() -> Stream | None:
        """Return the stream of the calling thread."""
        stack = getattr(_entered, "stack", [])
        return stack[-1] if stack else None

    def __enter__(self) -> Stream:
        _entered.stack = [*getattr(_entered, "stack", []), self]
        return self

    def __exit__(self, *_: object) -> None:
        _entered.stack.pop()

    def synchronize(self) -> None:
        """No-op: all work is complete."""

    def wait_event(self, event: Event) -> None:
        """No-op: all work is complete."""
        assert event.done


class Event:
    """Point in a stream, complete when it is recorded."""

    def __init__(self, *, disable_timing: bool) -> None:
        self.done = False

    def record(self, stream: Stream) -> None:
        """Complete the event."""
        self.done = True

    def synchronize(self) -> None:
        """Check that the event was recorded."""
        assert self.done


class UnownedMemory:
    """Memory that CuPy did not allocate."""

    def __init__(self, ptr: int, size: int, owner: object) -> None:
        self.ptr = ptr


class MemoryPointer:
    """Address in memory."""

    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.ptr = mem.ptr + offset


def alloc_pinned_memory(nbytes: int) -> Any:
    """Allocate host memory."""
    return bytearray(nbytes)
