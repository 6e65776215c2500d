"""Ctrl-C and SIGTERM as a request to stop between two training steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A context in which the first SIGINT or SIGTERM sets `requested`, and the second raises KeyboardInterrupt.

    Outside the main thread, where Python does not allow signal handlers, signals have their usual effect.
    """

    def __init__(self) -> None:
        self.requested = ""
        """Name of the signal; empty before the first."""
        self._previous: dict[signal.Signals, Handler] = {}

    def __call__(self) -> bool:
        return bool(self.requested)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name


__all__ = ["StopRequest"]
