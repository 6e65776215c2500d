"""The future of a read-back. A separate file, imported at the first read, because `concurrent.futures` imports slowly."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

from polyhal.hal.errors import DeviceLostError, message
from polyhal.hal.protocol import Event


class ReadFuture(Future[Any]):
    """A standard future that cannot be cancelled, because the device's copy cannot be cancelled."""

    def __init__(self, event: Event | None = None) -> None:
        """Create a future; `event` completes shortly before it."""
        super().__init__()
        self.set_running_or_notify_cancel()
        self.event = event
        self._process = os.getpid()

    def result(self, timeout: float | None = None) -> Any:
        """Return the array. Raises the typed error of work that failed, and TimeoutError."""
        if os.getpid() != self._process and not self.done():
            raise DeviceLostError(message(None, "the read was started before the process was forked", fix="read again"))
        event = self.event
        if event is not None and timeout is None and not self.done():
            # A thread that waits for the driver may execute or poll its work.
            try:
                event.wait()
            except Exception:
                super().result(timeout)  # the future also holds the error, and later calls raise it again
                raise  # unless the driver reports it only once, to this thread
        return super().result(timeout)
