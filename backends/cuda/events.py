"""Events: points in a device's work, and copies that report when they are complete."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from polyhal.backends.common.cuda_context import PrimaryContext
from polyhal.backends.common.cuda_driver import NOT_READY, CudaError
from polyhal.backends.common.launching.completion import Callback, Completion
from polyhal.backends.cuda.errors import CudaErrors
from polyhal.hal.errors import PolyhalError

_BLOCKING, _WITHOUT_TIME = 1, 2
"""CU_EVENT_BLOCKING_SYNC: a waiting thread sleeps; CU_EVENT_DISABLE_TIMING."""
_ACTION = "work on the device"


class NativeEvent:
    """Owner of a driver event, which it destroys."""

    __slots__ = ("__weakref__", "_context", "handle")

    def __init__(self, context: PrimaryContext, flags: int) -> None:
        """Create the event. The context must be current. Raises CudaError."""
        self._context = context
        self.handle = context.driver.value("cuEventCreate", "CUevent *", flags)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            with self._context:
                self._context.driver.lib.cuEventDestroy_v2(self.handle)


def recorded(context: PrimaryContext, stream: Any, flags: int = _WITHOUT_TIME) -> NativeEvent:
    """Return an event after all commands so far of a driver's stream. The context must be current. Raises CudaError."""
    event = NativeEvent(context, flags)
    context.driver.call("cuEventRecord", event.handle, stream)
    return event


class CudaEvent:
    """A point in a stream. Implements `polyhal.hal.protocol.Event`."""

    __slots__ = ("_context", "_errors", "_keep_alive", "native")

    def __init__(
        self, context: PrimaryContext, errors: CudaErrors, native: NativeEvent, keep_alive: object = None
    ) -> None:
        """`keep_alive` is referenced until the event is complete."""
        self.native = native
        self._context = context
        self._errors = errors
        self._keep_alive = keep_alive

    def wait(self) -> None:
        """Block until the event is complete. Raises the typed error of work that failed."""
        try:
            with self._context:
                self._context.driver.call("cuEventSynchronize", self.native.handle)
        except CudaError as error:
            raise self._errors.translate(error, _ACTION) from error
        self._keep_alive = None

    def is_complete(self) -> bool:
        """Return whether the event is complete, without blocking; True for work that failed."""
        with self._context:
            return bool(self._context.driver.lib.cuEventQuery(self.native.handle) != NOT_READY)


class CudaRead(CudaEvent):
    """A copy to the host, or from another device. Implements `polyhal.hal.protocol.CompletionEvent`."""

    __slots__ = ("_completer", "_completion", "_finish")

    def __init__(
        self,
        context: PrimaryContext,
        errors: CudaErrors,
        native: NativeEvent,
        completer: ReadCompleter,
        finish: Callable[[], None] | None = None,
    ) -> None:
        """`finish` runs after the driver's copy and before the read counts as complete.

        `completer` completes the read at once if it has a `finish`, else when a callback is added.
        """
        super().__init__(context, errors, native)
        self._completion = Completion()
        self._finish = [finish or _nothing]
        """Callable that completes the read; popped by the one thread that does so, because `pop` is atomic."""
        self._completer: ReadCompleter | None = completer
        if finish is not None:
            self._complete_later()

    def _complete_later(self) -> None:
        completer, self._completer = self._completer, None
        if completer is not None:
            completer.add(self)

    def wait(self) -> None:
        """Block until the bytes have arrived. Raises the typed error of work that failed."""
        if not self._completion.is_set():
            self.deliver()
        self._completion.wait()

    def is_complete(self) -> bool:
        """Return whether the bytes have arrived, without blocking."""
        if self._completion.is_set():
            return True
        return self._completer is not None and super().is_complete()

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when the bytes have arrived; immediately if they already have."""
        self._completion.add_callback(callback)
        self._complete_later()

    def deliver(self) -> None:
        """Wait for the driver's copy, then complete the read unless another thread does so."""
        problem: PolyhalError | None = None
        try:
            super().wait()
        except PolyhalError as error:
            problem = error
        with contextlib.suppress(IndexError):
            finish = self._finish.pop()
            if problem is None:
                finish()
            self._completion.set(problem)


class ReadCompleter:
    """A thread that completes the reads of one stream in order. It starts with the first read and ends when idle."""

    def __init__(self) -> None:
        self._pending: deque[CudaRead] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        """Process of the thread; a forked child lacks it."""
        _completers.add(self)

    def add(self, read: CudaRead) -> None:
        """Complete a read when its copy is done."""
        with self._lock:
            self._pending.append(read)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="polyhal-cuda-reads", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._thread = None
                    return
                read = self._pending[0]
            read.deliver()
            self._pending.popleft()

    def drain(self) -> None:
        """Wait until all reads are delivered."""
        thread = self._thread
        if thread is not None and os.getpid() == self._process:
            thread.join()


_completers: weakref.WeakSet[ReadCompleter] = weakref.WeakSet()


def _drain_all() -> None:
    """Deliver pending reads before the interpreter ends, because their thread must not outlive it."""
    for completer in list(_completers):
        completer.drain()


atexit.register(_drain_all)


def _nothing() -> None:
    """No-op: the read needs no further step."""
