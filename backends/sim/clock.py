"""The host's virtual time, one for each thread.

Threads work at the same time, so each has its own time. It advances to another thread's time only where real threads
synchronize: a received event was submitted before, an awaited event is complete, and a queue accepts packets one after
the other. Predictions therefore do not depend on how the operating system schedules the threads. (These are Lamport's
logical clocks, with durations: "Time, clocks, and the ordering of events in a distributed system", 1978.)
"""

from __future__ import annotations

import threading
from contextvars import ContextVar


class VirtualClock:
    """Nanoseconds since a machine was switched on, by thread. Submitting commands and waiting advance a thread's time.

    A thread starts at the time in its context (`contextvars.copy_context` inherits the parent's), or else at the latest
    time of all.
    """

    def __init__(self) -> None:
        self._now: ContextVar[int] = ContextVar("virtual time")  # contexts keep it alive; there are few
        self._now.set(0)
        self._latest = 0
        self._lock = threading.Lock()

    @property
    def now(self) -> int:
        """Time of the calling thread."""
        now = self._now.get(None)
        if now is None:
            now = self._latest
            self._now.set(now)
        return now

    def advance(self, ns: int) -> int:
        """Advance the calling thread's time by `ns`, and return it."""
        return self.wait_until(self.now + ns)

    def wait_until(self, ns: int) -> int:
        """Advance the calling thread's time to at least `ns`, and return it."""
        now = max(self.now, ns)
        self._now.set(now)
        with self._lock:
            self._latest = max(self._latest, now)
        return now
