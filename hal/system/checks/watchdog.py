"""The watchdog: reports by name a kernel that does not end.

A thread polls the oldest pending work of each device. Devices with events record one after every op; others are
synchronized after every op, so that the hanging op is the running one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.errors import message
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.protocol import Event

if TYPE_CHECKING:
    from polyhal.hal.core.execution.location import SourceLocation
    from polyhal.hal.device import Device

_LOOKS = 8
"""Polls of the thread within the time limit of a kernel."""


@dataclass(slots=True, eq=False)
class _Work:
    """An op that is enqueued or being enqueued."""

    call: ObservedCall
    location: SourceLocation
    began: float
    event: Event | None = None
    """Event that completes with the op; None while it is being enqueued."""
    reported: bool = False


class Watchdog:
    """An observer that records pending work, and a thread that polls it."""

    def __init__(self, seconds: float, report: Callable[[str], None] | None = None) -> None:
        """Watch with a limit of `seconds`.

        `report` is called with messages on the watchdog's thread; default: standard error.
        """
        self._seconds = seconds
        self._report = report or _print
        self._lock = threading.RLock()  # a report may run ops itself
        self._work: dict[Device, deque[_Work]] = defaultdict(deque)
        """Pending work by device, the oldest first."""
        self._progress: dict[Device, float] = {}
        """Time at which the last completed op was noticed, by device."""
        self._stopped = threading.Event()

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Record a call before it runs, and an event after it."""
        work = _Work(call, call.locate(), time.monotonic())
        with self._lock:
            self._work[call.device].append(work)
        try:
            yield
            if call.device.stream_backend is not None:
                work.event = call.device.stream_backend.mark()
            else:
                call.device.synchronize()
        finally:
            with self._lock:
                if work.event is None:
                    self._ended(call.device, work)
                self._advance(call.device)

    def run(self) -> None:
        """Poll until `stop` is called."""
        while not self._stopped.wait(self._seconds / _LOOKS):
            with self._lock:
                late = [work for device in list(self._work) if (work := self._late(device)) is not None]
            for work in late:
                self._report(self._message(work))

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def _late(self, device: Device) -> _Work | None:
        """Return the oldest work of a device, once, if it exceeds the limit."""
        self._advance(device)
        oldest = next(iter(self._work[device]), None)
        if oldest is None or oldest.reported or self._waited(oldest) < self._seconds:
            return None
        oldest.reported = True
        return oldest

    def _advance(self, device: Device) -> None:
        """Remove completed work from the front of a device's queue."""
        queue = self._work[device]
        while queue and (event := queue[0].event) is not None and event.is_complete():
            self._ended(device, queue[0])

    def _ended(self, device: Device, work: _Work) -> None:
        if work.reported:
            self._report(
                message("watchdog", f"{work.call.op.name} ended after {self._waited(work):.1f} s", device=device)
            )
        self._work[device].remove(work)
        self._progress[device] = time.monotonic()

    def _waited(self, work: _Work) -> float:
        """Return the seconds since the work was enqueued, or since earlier work ended."""
        return time.monotonic() - max(work.began, self._progress.get(work.call.device, 0.0))

    def _message(self, work: _Work) -> str:
        call, rest = work.call, len(self._work[work.call.device]) - 1
        behind = f", {rest} ops wait behind it" if rest > 0 else ""
        return message(
            "watchdog",
            f"{call.op.name} has not ended after {self._waited(work):.1f} s{behind}",
            expected=f"at most {self._seconds:g} s",
            device=call.device,
            fix=f"it was called {work.location} and runs as {call.resolution.how}",
        )


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@top_level
@contextmanager
def watchdog(seconds: float, report: Callable[[str], None] | None = None) -> Iterator[None]:
    """Report by name each op that has not ended after `seconds` inside the block: `with polyhal.watchdog(30): train()`.

    The message names op, line, module, kernel and device, and goes to standard error, or to `report`. The kernel keeps
    running: drivers cannot cancel it. Ops of all threads are watched. Captured steps run call by call inside the block.
    `POLYHAL_WATCHDOG=30` in the environment watches a whole program. Raises ValueError unless `seconds` is above 0.
    """
    from polyhal.hal.system.checks.modes import observing
    from polyhal.hal.system.checks.scoped import scoped

    dog = started(seconds, report)
    try:
        with scoped(), observing(dog):
            yield
    finally:
        dog.stop()


def started(seconds: float, report: Callable[[str], None] | None = None) -> Watchdog:
    """Start a watchdog and its thread. Raises ValueError unless `seconds` is above 0."""
    if not seconds > 0:
        raise ValueError(message("watchdog", f"got {seconds!r} seconds", expected="more than 0"))
    dog = Watchdog(seconds, report)
    threading.Thread(target=dog.run, name="polyhal watchdog", daemon=True).start()
    return dog
