"""Recording of launches for a command buffer, instead of enqueueing them.

Launches check for a recorder of their device before they enqueue work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

L = TypeVar("L")
"""A backend's form of a recorded launch."""


class LaunchRecorder(Generic[L]):
    """Receives the launches of one thread. Other threads keep enqueueing."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.launches: list[L] = []
        self.kept: list[object] = []
        """Temporaries, which must live as long as the launches."""

    def accepts(self) -> bool:
        """Return whether launches of the current thread are recorded."""
        return threading.get_ident() == self._thread

    def add(self, launch: L) -> None:
        """Record one launch."""
        self.launches.append(launch)


class _RecordsLaunches(Protocol[L]):
    """The open device of a backend."""

    recorder: LaunchRecorder[L] | None
    recording: threading.Lock
    """Lock held while `recorder` is set, so that threads record one after the other."""


def record_launches(
    runtime: _RecordsLaunches[L], calls: Sequence[Callable[[], None]]
) -> tuple[list[L], list[int], list[object]]:
    """Run `calls`. Returns their launches, the index of each launch's call, and the temporaries."""
    origins: list[int] = []
    recorder: LaunchRecorder[L] = LaunchRecorder()
    with runtime.recording:
        runtime.recorder = recorder
        try:
            for position, call in enumerate(calls):
                call()
                origins += [position] * (len(recorder.launches) - len(origins))
        finally:
            runtime.recorder = None
    return recorder.launches, origins, recorder.kept
