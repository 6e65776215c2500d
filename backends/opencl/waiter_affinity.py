"""Waiter affinity: core of a waiting thread in which a CPU driver also executes kernels.

Such a driver binds each worker thread to a core and leaves one core for the waiting thread, which it does not bind.
Some operating systems keep that thread on a worker's core for several milliseconds while the free core is idle. So the
thread is bound to the free core while it waits (see `pin_waiting_thread` in quirks.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_TASKS = Path("/proc/self/task")
_MOST_SEARCHES = 16
"""Maximum number of waits that search for workers."""


class WaiterAffinity:
    """Binds waiting threads to the core without a worker. Linux only."""

    def __init__(self) -> None:
        """Must run before the driver starts its workers: all threads that start later count as candidates."""
        self._older_threads = _threads()
        self._searches = _MOST_SEARCHES
        self._core: int | None = None

    @contextlib.contextmanager
    def bound(self) -> Iterator[None]:
        """Return a context for waiting, which binds the calling thread and restores its affinity at the end.

        Until the free core is known, the thread is not bound, and the core is searched for at the end of the wait.
        """
        core = self._core
        allowed = os.sched_getaffinity(0) if core is not None else set()
        if core not in allowed:
            yield
            if core is None and self._searches:
                self._search()
            return
        try:
            os.sched_setaffinity(0, {core})
        except OSError:  # the process has lost this core: give up
            self._core, self._searches = None, 0
        try:
            yield
        finally:
            # If the process has lost all these cores in the meantime, the system has already chosen others.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, allowed)

    def _search(self) -> None:
        """Find the one core without a bound worker. Workers are newer threads that are bound to a single core."""
        self._searches -= 1
        occupied: set[int] = set()
        for thread in _threads() - self._older_threads:
            try:
                cores = os.sched_getaffinity(thread)
            except OSError:  # the thread has ended
                continue
            if len(cores) == 1:
                occupied |= cores
        free = os.sched_getaffinity(0) - occupied
        if occupied and len(free) == 1:
            (self._core,) = free


def waiter_affinity(needed: bool) -> WaiterAffinity | None:
    """Return the affinity for waiting threads; None if the driver does not need it or the system cannot bind threads."""
    if not needed or sys.platform != "linux" or not _TASKS.is_dir():
        return None
    return WaiterAffinity()


def _threads() -> set[int]:
    return {int(task) for task in os.listdir(_TASKS)}
