"""The core on which a thread waits for a driver that computes in waiting threads: Intel's runtime for CPUs.

That runtime binds its workers, one to a core, and leaves one core to the thread that waits, which is not bound. Some
systems keep this thread on the core of a worker for several milliseconds while its own is idle: a training step of 5 ms was
seen to take 9. So it is bound while it waits, and free again afterwards.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_TASKS = Path("/proc/self/task")
_LOOKS = 16
"""Waits after which workers are no longer looked for."""


class Seat:
    """The core that the workers leave free, once they are there."""

    def __init__(self) -> None:
        """To be called before the driver starts its workers."""
        self._others = _threads()
        self._looks = _LOOKS
        self._core: int | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Wait within this context. Only the calling thread is bound; at the end it may use the same cores as before."""
        core = self._core
        allowed = os.sched_getaffinity(0) if core is not None else set()
        if core not in allowed:
            yield
            if core is None and self._looks:
                self._look()
            return
        try:
            os.sched_setaffinity(0, {core})
        except OSError:  # The core was taken from the process since.
            self._core, self._looks = None, 0
        try:
            yield
        finally:
            # The system has chosen other cores by itself if it took all of these away meanwhile.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, allowed)

    def _look(self) -> None:
        """Find the core on which none of the threads is that started since, and that are bound to one core each."""
        self._looks -= 1
        taken: set[int] = set()
        for thread in _threads() - self._others:
            try:
                cores = os.sched_getaffinity(thread)
            except OSError:  # It has ended.
                continue
            if len(cores) == 1:
                taken |= cores
        free = os.sched_getaffinity(0) - taken
        if taken and len(free) == 1:
            (self._core,) = free


def computes_in_waiting_threads(platform: str, cpu: bool) -> bool:
    """Whether a driver employs the thread that waits as one of its workers, and has one worker less without."""
    return cpu and platform.startswith("Intel")


def seat_for(platform: str, cpu: bool) -> Seat | None:
    """A seat for waiting threads, where the driver computes in them and the system lets threads be bound."""
    if not computes_in_waiting_threads(platform, cpu) or sys.platform != "linux" or not _TASKS.is_dir():
        return None
    return Seat()


def _threads() -> set[int]:
    return {int(task) for task in os.listdir(_TASKS)}
