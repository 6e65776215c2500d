"""Interrupts: notifications from the device to the host. Callbacks run on a separate thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

Handler = Callable[[], None]
Interrupt = tuple[Handler, float] | None
"""Handler and its delay in seconds; None is the sentinel that ends the thread."""


class InterruptController:
    """Delivers interrupts in the order in which they were raised. The thread starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._raised: SimpleQueue[Interrupt] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped: threading.Thread | None = None
        """Last stopped thread, which may still run handlers."""
        self._lock = threading.Lock()
        """Lock between `stop` on the command processor's thread and `settle` on the program's."""

    def deliver(self, handler: Handler, seconds: float = 0.0) -> None:
        """Enqueue a call of `handler`, `seconds` late. Called by the command processor."""
        with self._lock:
            if self._thread is None:
                arguments = (self._raised,)
                self._thread = threading.Thread(
                    target=_serve, args=arguments, name=f"{self._name} interrupts", daemon=True
                )
                self._thread.start()
            self._raised.put((handler, seconds))

    def settle(self) -> None:
        """Wait until all raised interrupts are delivered."""
        delivered = threading.Event()
        with self._lock:
            stopped, running = self._stopped, self._thread is not None
            if running:
                self._raised.put((delivered.set, 0.0))
        if stopped is not None:
            stopped.join()
        if running:
            delivered.wait()

    def stop(self) -> None:
        """End the thread after earlier interrupts. A later interrupt starts a new thread."""
        with self._lock:
            if self._thread is not None:
                self._stopped, self._thread = self._thread, None
                self._raised.put(None)
                self._raised = SimpleQueue()


def _serve(raised: SimpleQueue[Interrupt]) -> None:
    """Call handlers until the sentinel None."""
    while (interrupt := raised.get()) is not None:
        handler, seconds = interrupt
        if seconds:
            time.sleep(seconds)
        handler()
