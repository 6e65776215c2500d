"""Events: points in a device's work, and copies to the host that report when they are complete.

A driver runs callbacks on its own thread and may hold locks, so pyopencl starts a thread for each callback, which waits
for the driver's. Reads of a queue complete in order, so at most one of them has a pending driver callback. The
callback's thread delivers all reads that are complete by then, then registers the next callback.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable

import pyopencl as cl

from polyhal.backends.common.launching.completion import Callback, Completion
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.error_mapping import DriverErrors
from polyhal.hal.errors import PolyhalError

_COMPLETE = cl.command_execution_status.COMPLETE
_ACTION = "work on the device"


class OpenCLEvent:
    """A point in a queue. Implements `polyhal.hal.protocol.Event`."""

    __slots__ = ("_keep_alive", "_runtime", "cl")

    def __init__(self, runtime: DeviceRuntime, event: cl.Event, keep_alive: object = None) -> None:
        """`keep_alive` is referenced until the event is complete."""
        self.cl = event
        self._runtime = runtime
        self._keep_alive = keep_alive

    def wait(self) -> None:
        """Block until the event is complete. Raises the typed error of work that failed."""
        try:
            with self._runtime.waiting():
                self.cl.wait()
        except cl.Error as error:
            raise self._runtime.errors.translate(error, _ACTION) from error
        self._keep_alive = None

    def is_complete(self) -> bool:
        """Return whether the event is complete, without blocking."""
        return bool(self.cl.command_execution_status <= _COMPLETE)

    def within(self, context: cl.Context) -> cl.Event | None:
        """Return the native event if queues of `context` can wait for it; None if only the host can."""
        return self.cl if self._runtime.context == context else None


class OpenCLRead(OpenCLEvent):
    """A copy to the host. Implements `polyhal.hal.protocol.CompletionEvent`."""

    __slots__ = ("_completion", "_finish")

    def __init__(self, runtime: DeviceRuntime, event: cl.Event, finish: Callable[[], None]) -> None:
        """`finish` runs after the driver's copy and before the read counts as complete."""
        super().__init__(runtime, event)
        self._completion = Completion()
        self._finish = [finish]
        """Callable that completes the read; popped by the one thread that does so, because `pop` is atomic."""

    def wait(self) -> None:
        """Block until the bytes have arrived. Raises the typed error of work that failed."""
        if not self._completion.is_set():
            # The completion below raises a failure, with the status of this command.
            with contextlib.suppress(PolyhalError):
                super().wait()
                self.deliver(None)
        self._completion.wait()

    def is_complete(self) -> bool:
        """Return whether the bytes have arrived, without blocking."""
        return self._completion.is_set()

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when the bytes have arrived; immediately if they already have."""
        self._completion.add_callback(callback)

    def deliver(self, error: PolyhalError | None) -> None:
        """Complete the read, unless another thread does so: a callback's thread or a waiting one."""
        try:
            finish = self._finish.pop()
        except IndexError:
            return
        if error is None:
            finish()
        self._completion.set(error)


class OpenCLCopy(OpenCLEvent):
    """A copy from another device. Implements `polyhal.hal.protocol.CompletionEvent`."""

    __slots__ = ("_pending", "_sent")

    def __init__(
        self,
        runtime: DeviceRuntime,
        event: cl.Event,
        pending: Callable[[], PendingReads],
        sent: tuple[cl.Context, cl.Event] | None = None,
    ) -> None:
        """`pending` returns the queue's PendingReads; `sent` is the end of the copy in another context."""
        super().__init__(runtime, event)
        self._pending = pending
        self._sent = sent

    def within(self, context: cl.Context) -> cl.Event | None:
        """See `OpenCLEvent`."""
        return self._sent[1] if self._sent is not None and self._sent[0] == context else super().within(context)

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when the copy is complete. Only copies with a callback register one with the driver."""
        read = OpenCLRead(self._runtime, self.cl, lambda: None)
        read.add_callback(callback)
        self._pending().add(read)


class PendingReads:
    """The reads of one queue that are not complete, oldest first."""

    def __init__(self, errors: DriverErrors) -> None:
        self._errors = errors
        self._pending: deque[OpenCLRead] = deque()
        self._lock = threading.Lock()
        self._delivering = False
        """True if a thread is delivering, or a driver callback is pending."""
        self._requested: OpenCLRead | None = None
        """Read whose driver callback is pending."""
        self._idle = threading.Event()
        self._process = os.getpid()
        """Process of the delivering threads; a forked child lacks them."""

    def add(self, read: OpenCLRead) -> None:
        """Add a read, to be delivered when the driver has completed it. The queue must have been flushed."""
        with self._lock:
            self._pending.append(read)
            self._idle.clear()
            if self._delivering:
                return
            self._delivering = True
        self._request_callback(read)

    def drain(self) -> None:
        """Wait until all reads are delivered. Runs at exit: a callback's thread must not outlive the interpreter."""
        if self._pending and os.getpid() == self._process:
            self._idle.wait()

    def _request_callback(self, read: OpenCLRead) -> None:
        self._requested = read
        try:
            read.cl.set_callback(_COMPLETE, lambda status: self._called_back(read))
        except cl.Error as error:
            self._fail_all(self._errors.translate(error, _ACTION))
            return
        if _status(read) <= _COMPLETE:
            # Some drivers never run the callback of a command that is already complete.
            self._called_back(read)

    def _called_back(self, read: OpenCLRead) -> None:
        """Deliver complete reads. No-op if repeated: the driver may call after the status check in `_request_callback`."""
        with self._lock:
            if self._requested is not read:
                return
            self._requested = None
        self._deliver_complete()

    def _deliver_complete(self) -> None:
        """Deliver the reads that are complete. Runs on one thread at a time."""
        while (read := self._oldest()) is not None:
            status = _status(read)
            if status > _COMPLETE:
                self._request_callback(read)
                return
            self._deliver(read, None if status == _COMPLETE else self._errors.from_status(status, _ACTION))

    def _fail_all(self, error: PolyhalError) -> None:
        """Deliver an error to all reads, because the driver cannot report their completion."""
        while (read := self._oldest()) is not None:
            self._deliver(read, error)

    def _oldest(self) -> OpenCLRead | None:
        """Return the read to deliver next. None ends the delivering thread's loop."""
        with self._lock:
            if self._pending:
                return self._pending[0]
            self._delivering = False
            self._idle.set()
            return None

    def _deliver(self, read: OpenCLRead, error: PolyhalError | None) -> None:
        """Complete the oldest read. It counts as pending until then, so that `drain` waits for it."""
        read.deliver(error)
        self._pending.popleft()


def _status(read: OpenCLRead) -> int:
    """Return the status of the read's command, negative if it failed."""
    try:
        return int(read.cl.command_execution_status)
    except cl.Error as error:
        return int(error.code)
