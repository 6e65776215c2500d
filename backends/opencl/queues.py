"""Command queues: the device's own and one for each stream.

Each thread has a current queue. When a queue has to wait for an event, the event is stored and the wait is enqueued
before the queue's next command. So streams with consecutive work in the program may still run concurrently. No queue
can wait for the events of some copies from other devices: the host then waits before the next command.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pyopencl as cl

from polyhal.backends.opencl.driver import pointer
from polyhal.backends.opencl.error_mapping import DriverErrors
from polyhal.hal.protocol import Event

_SMALL_BATCH = 64
"""Launches per batch: 16 to 128 differed by at most 3 % in captured steps, and fewer made eager steps up to 8 % slower."""


class CommandQueue:
    """An in-order queue, with a second one that records timestamps while profiling is on."""

    def __init__(self, queues: CommandQueues) -> None:
        self._queues = queues
        self._plain = cl.CommandQueue(queues.context, queues.device)
        self._timed: cl.CommandQueue | None = None
        self._current = self._plain
        self._pointer = pointer(self._plain)
        self._waits: list[cl.Event | Event] = []
        """Pending waits: events of the context, for which the queue waits, and others, for which the host waits."""
        self._lock = threading.Lock()
        self._launched = 0
        self._markers: deque[cl.Event] = deque()

    @property
    def native(self) -> cl.CommandQueue:
        """The queue for the next command; enqueues pending waits first."""
        if self._waits:
            with self._lock:
                try:
                    events = self._waited_for_by_host()
                    if events:
                        cl.enqueue_barrier(self._current, wait_for=events)
                finally:
                    # Last, because another thread that finds the list empty may enqueue immediately.
                    self._waits = []
        return self._current

    def _waited_for_by_host(self) -> list[cl.Event]:
        """Wait for the pending events for which the queue cannot wait. Returns the others. The caller holds the lock."""
        events = []
        for event in self._waits:
            if isinstance(event, cl.Event):
                events.append(event)
            else:
                event.wait()
        return events

    def pointer(self) -> Any:
        """Return the driver's handle of `native`, for direct calls of the driver."""
        if self._waits:
            _ = self.native
        return self._pointer

    def mark(self) -> cl.Event:
        """Submit all commands so far and return an event that completes after them. Waits for copies from other devices."""
        if self._waits:
            with self._lock:
                self._waits = list[cl.Event | Event](self._waited_for_by_host())
        event = cl.enqueue_marker(self._current)
        self._current.flush()
        return event

    def wait_for(self, event: cl.Event | Event) -> None:
        """Make the next command wait for `event`."""
        with self._lock:
            self._waits.append(event)

    def launched(self, count: int) -> None:
        """Count enqueued kernels: submit them in batches, and block if the device is too far behind.

        A driver that hears late works late, and one submission that takes seconds freezes the desktop of users whose
        GPU also draws the screen. Unbounded queues cost memory, and time on CPU drivers.
        """
        self._launched += count
        if self._launched >= self._queues.batch_size:
            self.end_batch()

    def make_room(self, count: int) -> None:
        """End the batch now if one of the next `count` kernels would: the host must not block between devices."""
        if self._launched + count >= self._queues.batch_size:
            self.end_batch()

    def end_batch(self) -> None:
        """Submit the launches since the last batch, and block if the device is too far behind."""
        self._launched = 0
        try:
            if self._queues.waiting is not None:
                with self._queues.waiting():
                    self._current.finish()
                return
            self._markers.append(self.mark())
            if len(self._markers) > self._queues.max_batches:
                self._markers.popleft().wait()
        except cl.Error as error:
            raise self._queues.errors.translate(error, "waiting for the device") from error

    def record_timestamps(self, on: bool) -> None:
        """Wait for all work, then switch to the queue that records timestamps, or back."""
        self.finish()
        if on and self._timed is None:
            properties = cl.command_queue_properties.PROFILING_ENABLE
            self._timed = cl.CommandQueue(self._queues.context, self._queues.device, properties)
        self._current = self._timed if on and self._timed is not None else self._plain
        self._pointer = pointer(self._current)

    def finish(self) -> None:
        """Wait for all commands."""
        self.native.finish()
        self._markers.clear()
        self._launched = 0


class _SelectedQueue(threading.local):
    """The queue of a thread; None for the device's own."""

    queue: CommandQueue | None = None


class CommandQueues:
    """All queues of one device."""

    batch_size = 256
    """Number of launches after which a queue is flushed."""
    max_batches = 16
    """Maximum number of batches in flight."""
    waiting: Callable[[], AbstractContextManager[None]] | None = None
    """Context in which the host waits after each batch; None to let the host run ahead."""

    def __init__(self, context: cl.Context, device: cl.Device, errors: DriverErrors) -> None:
        """Create the device's own queue. Raises BackendError."""
        self.context = context
        self.device = device
        self.errors = errors
        self._selected = _SelectedQueue()
        self._timestamps = False
        self._all: list[CommandQueue] = []
        self._several = False
        """True if a thread may have selected a queue other than the device's own."""
        self._own = self.open()

    def open(self) -> CommandQueue:
        """Return a new queue, which lives as long as the device is open. Raises BackendError."""
        try:
            queue = CommandQueue(self)
            if self._timestamps:
                queue.record_timestamps(True)
        except cl.Error as error:
            raise self.errors.translate(error, "creating a queue") from error
        self._all.append(queue)
        self._several = len(self._all) > 1
        return queue

    def wait_after_batches(self, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        """Make the host wait after each batch, because the waiting thread executes kernels too (`pin_waiting_thread`)."""
        self.waiting = waiting
        self.batch_size = _SMALL_BATCH

    def current(self) -> CommandQueue:
        """Return the queue of the calling thread."""
        return (self._selected.queue or self._own) if self._several else self._own

    def switch(self, queue: CommandQueue | None) -> CommandQueue | None:
        """Select the queue of the calling thread, None for the device's own. Return the previous selection."""
        previous, self._selected.queue = self._selected.queue, queue
        return previous

    def record_timestamps(self, on: bool) -> None:
        """Wait for the work of all queues, then switch their timestamps on or off."""
        self._timestamps = on
        for queue in self._all:
            queue.record_timestamps(on)

    def finish(self) -> None:
        """Wait for all commands on all queues."""
        for queue in self._all:
            queue.finish()
