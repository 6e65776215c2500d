"""Streams: sequences of work on one device that may run concurrently.

    s, t = device.stream(), device.stream()
    with s:
        a = f(x)
    with t:
        b = g(y)
    c = a + b  # after both

A block on a stream starts after all work that the program enqueued before the block, and work after the block waits for it.
Two consecutive blocks do not wait for each other, so neither may use results of the other; `Stream.after` orders them.
On devices without streams the blocks run one after the other. A captured step ignores streams while it is recorded, and runs on
the stream in which it is replayed.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

from polyhal.hal import dtypes
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.events import DeviceEvent, record_event
from polyhal.hal.core.memory.pool import Pool, bucket
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import SupportsStreams

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_ELEMENT = contiguous(dtypes.float32, (1,))


class SupportsQueuedWaits(Protocol):
    """Streams that can wait without a kernel.

    Others launch a small kernel, so that marks are also ordered after their waits.
    """

    def begin_to_wait(self) -> None:
        """Enqueue the pending waits of the thread's stream. Does not block the host."""


class _EnteredBlocks(threading.local):
    """The `with` blocks of streams that a thread has entered."""

    def __init__(self) -> None:
        self.previous: list[tuple[Any, Pool | None]] = []
        """Stream and pool before each block."""


class Stream:
    """A stream of `device`: a context manager that may be entered any number of times. It has its own memory pool."""

    def __init__(self, device: Device) -> None:
        self.device = device
        if device.stream_backend is not None:
            opened = _take_idle(device.stream_backend, device)
            self._stream, self._pool = opened
            weakref.finalize(self, device.idle_streams.append, opened)
        self._entered = _EnteredBlocks()

    def __enter__(self) -> Self:
        if (backend := self.device.stream_backend) is not None:
            begin = backend.mark()
            stream = backend.switch_stream(self._stream)
            backend.wait_for(begin)
            self._entered.previous.append((stream, self.device.pool.enter(self._pool)))
        return self

    def __exit__(self, *exc: object) -> None:
        if (backend := self.device.stream_backend) is not None:
            stream, pool = self._entered.previous.pop()
            end = backend.mark()
            backend.switch_stream(stream)
            backend.wait_for(end)
            self.device.pool.leave(pool)

    @contextmanager
    def selected(self) -> Iterator[None]:
        """Enqueue this thread's work on the stream inside the block; the caller orders it and manages its memory."""
        backend = self.device.stream_backend
        if backend is None:
            yield
            return
        previous = backend.switch_stream(self._stream)
        try:
            yield
        finally:
            backend.switch_stream(previous)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Enqueue this thread's work on the stream, with memory from the stream's pool; the caller orders it."""
        if self.device.stream_backend is None:
            yield
            return
        previous = self.device.pool.enter(self._pool)
        try:
            with self.selected():
                yield
        finally:
            self.device.pool.leave(previous)

    def after_current(self) -> None:
        """Make later work on this stream wait for all work enqueued so far on the thread's selected stream."""
        if (backend := self.device.stream_backend) is not None:
            event = backend.mark()
            with self.selected():
                backend.wait_for(event)

    def after(self, other: Stream) -> None:
        """Make later work on this stream wait for all work enqueued on `other` so far."""
        if (backend := self.device.stream_backend) is not None:
            with other.selected():
                event = backend.mark()
            with self.selected():
                backend.wait_for(event)

    def record_event(self) -> DeviceEvent:
        """Return an event after all work enqueued on the stream so far."""
        with self.selected():
            return record_event(self.device)

    def wait_event(self, event: DeviceEvent) -> None:
        """Make later work on this stream wait for `event`."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Alias of `after`, under PyTorch's name."""
        self.after(stream)

    def synchronize(self) -> None:
        """Wait for all work enqueued on the stream so far. Raises the typed error of work that failed."""
        backend = self.device.stream_backend
        if backend is None:
            self.device.synchronize()
        else:
            with self.selected():
                event = backend.mark()
            event.wait()


def _take_idle(backend: SupportsStreams, device: Device) -> tuple[Any, Pool]:
    """Return an unused stream of the backend with its pool.

    They stay paired, as the stream's order makes reuse in the pool safe.
    """
    try:
        return device.idle_streams.pop()
    except IndexError:
        return backend.open_stream(), device.pool.stream_pool()


def begin_to_wait(device: Device) -> None:
    """Enqueue the pending waits of the thread's stream now, not only with its next work.

    Marks of the stream, and other streams that wait for them, are then also ordered after these waits.
    """
    waits: Callable[[], None] | None = getattr(device.backend, "begin_to_wait", None)  # of SupportsQueuedWaits
    if waits is not None:
        waits()
        return
    memory = _written(os.getpid())
    buffer = memory.get(device)
    if buffer is None:  # another thread may also arrive here, and only one buffer may ever be written
        # Kept alive: otherwise the pool would reuse it for other streams before this one has written it.
        buffer = memory.setdefault(device, device.pool.take(bucket(_ELEMENT.nbytes)))
    device.backend.fill(0, Ref(buffer.handle, _ELEMENT, 0))


@functools.lru_cache(maxsize=1)
def _written(pid: int) -> weakref.WeakKeyDictionary[Device, Buffer]:
    """Return scratch memory of the devices of a process that streams write and nothing reads."""
    return weakref.WeakKeyDictionary()
