"""Completion of asynchronous work: the state behind a backend's `CompletionEvent`."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

Callback = Callable[[BaseException | None], None]


class Completion:
    """Completion flag, error and callbacks of some work. Thread-safe."""

    __slots__ = ("_callbacks", "_complete", "_error", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._complete = threading.Event()
        self._callbacks: list[Callback] = []
        self._error: BaseException | None = None

    def set(self, error: BaseException | None) -> None:
        """Mark the work as complete, and call the callbacks on this thread. Only the first call counts."""
        with self._lock:
            if self._complete.is_set():
                return
            self._error = error
            self._complete.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            run_callback(callback, error)

    def is_set(self) -> bool:
        """Return whether the work is complete."""
        return self._complete.is_set()

    def wait(self) -> None:
        """Block until the work is complete. Raises its error."""
        self._complete.wait()
        if self._error is not None:
            raise self._error

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` with the error when the work is complete; at once if it already is."""
        with self._lock:
            if not self._complete.is_set():
                self._callbacks.append(callback)
                return
        run_callback(callback, self._error)


class Finished:
    """Event of work that is already complete. Implements `polyhal.hal.protocol.CompletionEvent`."""

    def wait(self) -> None:
        """No-op: the work is complete."""

    def is_complete(self) -> bool:
        """Return True."""
        return True

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` at once."""
        run_callback(callback, None)


def run_callback(callback: Callback, error: BaseException | None) -> None:
    """Call a callback. An error that it raises is printed, because it has no caller to propagate to."""
    try:
        callback(error)
    except Exception:
        traceback.print_exc()
