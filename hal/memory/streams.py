"""Streams: sequences of work on one device that may run concurrently.

    s, t = device.stream(), device.stream()
    with s:
        a = f(x)
    with t:
        b = g(y)
    c = a + b  # after both

A block on a stream starts after all work that the program enqueued before the block, and work after the block waits for it.
Two blocks in a row do not wait for each other, so one must not use the results of the other; `Stream.after` orders them.
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
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.memory.events import DeviceEvent, record_event
from polyhal.hal.memory.pool import Pool, bucket
from polyhal.hal.protocol import SupportsStreams

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_ELEMENT = contiguous(dtypes.float32, (1,))


class SupportsQueuedWaits(Protocol):
    """Streams that wait without a kernel. Others get a small one, so that marks come after their waits, too."""

    def begin_to_wait(self) -> None:
        """Make what the thread's stream was told to wait for a part of its work. Does not block the host."""


class _EnteredBlocks(threading.local):
    """The blocks that a thread is in."""

    def __init__(self) -> None:
        self.previous: list[tuple[Any, Pool | None]] = []
        """The stream and the pool before each block."""


class Stream:
    """A stream of `device`: a context manager that may be entered any number of times. It has a memory pool of its own."""

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
        """Send this thread's work to the stream inside the block; the caller orders it and manages its memory."""
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
        """Send this thread's work to the stream, and take memory for it from the stream's pool; the caller orders it."""
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
        """Let further work on this stream start after all work enqueued so far on the one that the thread has selected."""
        if (backend := self.device.stream_backend) is not None:
            event = backend.mark()
            with self.selected():
                backend.wait_for(event)

    def after(self, other: Stream) -> None:
        """Let further work on this stream start after all work enqueued on `other` so far."""
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
        """Let further work on this stream start after `event`."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Do what `after` does, under PyTorch's name."""
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
    """An unused stream of the backend with its pool. They stay together, as the order of one makes the other's reuse safe."""
    try:
        return device.idle_streams.pop()
    except IndexError:
        return backend.open_stream(), device.pool.stream_pool()


def begin_to_wait(device: Device) -> None:
    """Let the thread's stream wait now for what it was told to wait for, and not only when it gets its next work.

    Marks of the stream, and so other streams that wait for those, then wait for it, too.
    """
    waits: Callable[[], None] | None = getattr(device.backend, "begin_to_wait", None)  # of SupportsQueuedWaits
    if waits is not None:
        waits()
        return
    memory = _written(os.getpid())
    buffer = memory.get(device)
    if buffer is None:  # another thread may be here, too, and only one buffer may ever be written
        # Kept: the pool would give it to work on other streams before this one has written there.
        buffer = memory.setdefault(device, device.pool.take(bucket(_ELEMENT.nbytes)))
    device.backend.fill(0, Ref(buffer.handle, _ELEMENT, 0))


@functools.lru_cache(maxsize=1)
def _written(pid: int) -> weakref.WeakKeyDictionary[Device, Buffer]:
    """Memory of the devices of a process that streams write to and nobody reads."""
    return weakref.WeakKeyDictionary()
