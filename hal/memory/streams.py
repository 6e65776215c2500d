"""Streams: sequences of work on one device that may run at the same time.

    s, t = device.stream(), device.stream()
    with s:
        a = f(x)
    with t:
        b = g(y)
    c = a + b  # after both

A stream begins with what the program has enqueued before the block, and what comes after the block begins when it has ended.
Two blocks in a row do not wait for each other, so one must not use what the other makes; `Stream.after` orders them.
On devices without streams the blocks run one after the other. A captured step ignores streams while it is recorded, and
goes to the one in which it is run.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from polyhal.hal.memory.pool import Pool
from polyhal.hal.protocol import Feature

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class _Thread(threading.local):
    """For each block that a thread is in: the stream and the pool before it."""

    def __init__(self) -> None:
        self.before: list[tuple[Any, Pool | None]] = []


class Stream:
    """A stream of `device`; use it as a context manager, as often as wanted. What its blocks allocate is its own to reuse."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._backend: Any = None
        if device.features & Feature.STREAMS:
            self._backend = device.backend
            own = _taken(device)
            self._stream, self._pool = own
            weakref.finalize(self, device.idle_streams.append, own)
        self._thread = _Thread()

    def __enter__(self) -> Self:
        if self._backend is not None:
            begin = self._backend.mark()
            stream = self._backend.switch_stream(self._stream)
            self._backend.wait_for(begin)
            self._thread.before.append((stream, self.device.pool.enter(self._pool)))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._backend is not None:
            stream, pool = self._thread.before.pop()
            end = self._backend.mark()
            self._backend.switch_stream(stream)
            self._backend.wait_for(end)
            self.device.pool.leave(pool)

    @contextmanager
    def selected(self) -> Iterator[None]:
        """Send what this thread enqueues in the block here; for those who order it and look after the memory themselves."""
        if self._backend is None:
            yield
            return
        before = self._backend.switch_stream(self._stream)
        try:
            yield
        finally:
            self._backend.switch_stream(before)

    def after(self, other: Stream) -> None:
        """Let what comes next on this stream begin after all that `other` was given so far."""
        if self._backend is not None:
            with other.selected():
                event = self._backend.mark()
            with self.selected():
                self._backend.wait_for(event)

    def synchronize(self) -> None:
        """Wait for all that the stream was given so far. Raises the typed error of work that failed."""
        if self._backend is None:
            self.device.synchronize()
        else:
            with self.selected():
                event = self._backend.mark()
            event.wait()


def _taken(device: Device) -> tuple[Any, Pool]:
    """A stream of the backend, with its memory, that nobody uses. The two stay together, as one orders the other's reuse."""
    try:
        return device.idle_streams.pop()
    except IndexError:
        return device.backend.open_stream(), device.pool.branch()  # type: ignore[attr-defined]
