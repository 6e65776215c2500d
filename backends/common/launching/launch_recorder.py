"""Recording of launches for a command buffer, instead of enqueueing them.

Launches check for a recorder of their device before they enqueue work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
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
        self.workspace_bytes: dict[int, int] = {}
        """Size of each workspace of the current call, by the `id` of its handle: the memory of a handle may be larger."""

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
                recorder.workspace_bytes = _workspace_bytes(call)
                call()
                origins += [position] * (len(recorder.launches) - len(origins))
        finally:
            runtime.recorder = None
    return recorder.launches, origins, recorder.kept


def _workspace_bytes(call: Callable[[], None]) -> dict[int, int]:
    """Return the sizes of workspaces in a call of a launch with bound arguments; other calls have none."""
    if not isinstance(call, partial):
        return {}
    sizes = getattr(call.func, "workspace", ())
    handles = call.args[len(call.args) - len(sizes) :]
    return {id(handle): nbytes for handle, nbytes in zip(handles, sizes, strict=True)}
