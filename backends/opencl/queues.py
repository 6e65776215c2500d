"""The queues of a device: one that everything goes to at first, and one more for each stream.

Each thread has a current lane. What one lane waits for is noted and put into its queue before its next command, so that two
streams that follow one another in the program may still run at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pyopencl as cl

from polyhal.backends.opencl import error_mapping
from polyhal.backends.opencl.driver import pointer

_BATCH_OF_HELP = 64
"""Launches: 16 to 128 made no difference of more than 3 %, captured, and fewer cost eager steps up to 8 %."""


class Lane:
    """An in-order queue, with a twin that records timestamps while profiling is on."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._plain = cl.CommandQueue(lanes.context, lanes.device)
        self._timed: cl.CommandQueue | None = None
        self._queue = self._plain
        self._pointer = pointer(self._plain)
        self._waits: list[cl.Event] = []
        self._lock = threading.Lock()
        self._launched = 0
        self._markers: deque[cl.Event] = deque()

    @property
    def queue(self) -> cl.CommandQueue:
        """Where the next command goes, after what it has to wait for."""
        if self._waits:
            with self._lock:
                # Emptied last: another thread that finds the list empty may enqueue at once.
                if self._waits:
                    cl.enqueue_barrier(self._queue, wait_for=self._waits)
                    self._waits = []
        return self._queue

    def pointer(self) -> Any:
        """The same for the driver's own functions."""
        if self._waits:
            _ = self.queue
        return self._pointer

    def mark(self) -> cl.Event:
        """An event that is complete when all commands so far are."""
        event = cl.enqueue_marker(self._queue)
        self._queue.flush()
        return event

    def wait_for(self, event: cl.Event) -> None:
        """Let the next command begin after `event`."""
        with self._lock:
            self._waits.append(event)

    def launched(self, count: int) -> None:
        """Note that kernels were enqueued: submit them in batches, and wait where the device is too far behind.

        A driver that is told late works late, and one submission that takes seconds freezes the desktops of people whose GPU
        also draws the screen. Queues that grow without bound cost memory, and time on CPU drivers.
        """
        self._launched += count
        if self._launched >= self._lanes.batch:
            self._launched = 0
            try:
                if self._lanes.waiting is not None:
                    with self._lanes.waiting():
                        self._queue.finish()
                    return
                self._markers.append(self.mark())
                if len(self._markers) > self._lanes.batches:
                    self._markers.popleft().wait()
            except cl.Error as error:
                raise error_mapping.translate(error, "waiting for the device", self._lanes.name) from error

    def time(self, on: bool) -> None:
        """Switch to the queue that records timestamps, or back, after all work."""
        self.finish()
        if on and self._timed is None:
            properties = cl.command_queue_properties.PROFILING_ENABLE
            self._timed = cl.CommandQueue(self._lanes.context, self._lanes.device, properties)
        self._queue = self._timed if on and self._timed is not None else self._plain
        self._pointer = pointer(self._queue)

    def finish(self) -> None:
        """Wait for everything enqueued."""
        self.queue.finish()
        self._markers.clear()
        self._launched = 0


class _Thread(threading.local):
    """Which lane a thread's commands go to; None: the first."""

    lane: Lane | None = None


class Lanes:
    """All lanes of one device."""

    batch = 256
    """Launches after which a queue is flushed."""
    batches = 16
    """Batches that the host may be ahead of the device."""
    waiting: Callable[[], AbstractContextManager[None]] | None = None
    """Where the host waits after each batch, as the device computes with its help only; None where it may run ahead."""

    def __init__(self, context: cl.Context, device: cl.Device, name: str) -> None:
        """Raises BackendError where the driver has no queue to give; `name` is the device's."""
        self.context = context
        self.device = device
        self.name = name
        self._thread = _Thread()
        self._timing = False
        self._all: list[Lane] = []
        self.several = False
        """Whether a thread may have another lane than the first."""
        self.first = self.open()

    def open(self) -> Lane:
        """One more lane, for as long as the device is open. Raises BackendError."""
        try:
            lane = Lane(self)
            if self._timing:
                lane.time(True)
        except cl.Error as error:
            raise error_mapping.translate(error, "creating a queue", self.name) from error
        self._all.append(lane)
        self.several = len(self._all) > 1
        return lane

    def help(self, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        """Wait for the device often: it computes in the thread that waits, and with one worker less while none does.

        A host that ran ahead of such a device on two cores was seen to take 1.7 times as long for a training step.
        """
        self.waiting = waiting
        self.batch = _BATCH_OF_HELP

    def current(self) -> Lane:
        """The lane of the calling thread."""
        return (self._thread.lane or self.first) if self.several else self.first

    def switch(self, lane: Lane | None) -> Lane | None:
        """Send the thread's commands to `lane`, None: the first, from now on. Returns what they went to before."""
        previous, self._thread.lane = self._thread.lane, lane
        return previous

    def time(self, on: bool) -> None:
        """Have all queues record timestamps, or not, after all work."""
        self._timing = on
        for lane in self._all:
            lane.time(on)

    def finish(self) -> None:
        """Wait for everything enqueued on any lane."""
        for lane in self._all:
            lane.finish()
