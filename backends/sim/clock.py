"""The host's virtual time: that of each of its threads.

Threads work at the same time, so each has a time of its own, and learns from others only what a real one would: an event that
it gets was submitted before, one that it has waited for is complete, and a queue takes packets one after the other. What is
predicted therefore does not depend on how the threads are scheduled here. (These are Lamport's logical clocks, with durations:
"Time, clocks, and the ordering of events in a distributed system", 1978.)
"""

from __future__ import annotations

import threading
from contextvars import ContextVar


class VirtualClock:
    """Nanoseconds since a machine was switched on. A thread's time advances when it submits commands and when it waits.

    A thread begins at the time of the one whose context it got (`contextvars.copy_context`), or else at the latest time of all.
    """

    def __init__(self) -> None:
        self._now: ContextVar[int] = ContextVar("virtual time")  # contexts keep it, of which there are few
        self._now.set(0)
        self._latest = 0
        self._lock = threading.Lock()

    @property
    def now(self) -> int:
        """The time of the calling thread."""
        now = self._now.get(None)
        if now is None:
            now = self._latest
            self._now.set(now)
        return now

    def advance(self, ns: int) -> int:
        """Let the calling thread work for some time, and return the time after it."""
        return self.wait_until(self.now + ns)

    def wait_until(self, ns: int) -> int:
        """Let the calling thread wait, unless it is later already, and return the time after it."""
        now = max(self.now, ns)
        self._now.set(now)
        with self._lock:
            self._latest = max(self._latest, now)
        return now
