"""The future of a read-back. In a file of its own, imported at the first one, because `concurrent.futures` imports slowly."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

from polyhal.hal.errors import DeviceLostError, message
from polyhal.hal.protocol import Event


class ReadFuture(Future[Any]):
    """A standard future that cannot be cancelled, because the device's copy cannot be."""

    def __init__(self, event: Event | None = None) -> None:
        """`event` is complete shortly before the future is."""
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
            # A thread that waits for the driver may compute for it, or poll it.
            try:
                event.wait()
            except Exception:
                super().result(timeout)  # the error comes with the future as well, and later calls raise it, too
                raise  # unless the driver reports it once only, and that was to this thread
        return super().result(timeout)
