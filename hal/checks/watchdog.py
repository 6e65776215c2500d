"""The watchdog: reports by name a kernel that does not end.

A thread looks at the oldest work of each device that is not done. Devices with events get a marker after every op; others are
waited for after every op, so that the op that hangs is the one that is running.
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

from polyhal.hal.checks.observer import ObservedCall
from polyhal.hal.errors import message
from polyhal.hal.protocol import Event

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.dispatch.location import SourceLocation

_LOOKS = 8
"""How often the thread looks within the time that a kernel is given."""


@dataclass(slots=True, eq=False)
class _Work:
    """An op that was enqueued, or is being enqueued."""

    call: ObservedCall
    location: SourceLocation
    began: float
    event: Event | None = None
    """Complete when the op is done; None while it is being enqueued."""
    reported: bool = False


class Watchdog:
    """An observer that notes what runs, and a thread that looks at it."""

    def __init__(self, seconds: float, report: Callable[[str], None] | None = None) -> None:
        """`report` gets the messages, in a thread of the watchdog; standard error by default."""
        self._seconds = seconds
        self._report = report or _print
        self._lock = threading.RLock()  # a report may run ops itself
        self._work: dict[Device, deque[_Work]] = defaultdict(deque)
        """What is not known to be done, the oldest first."""
        self._progress: dict[Device, float] = {}
        """When the last op of a device was seen to be done."""
        self._stopped = threading.Event()

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Note a call before it runs, and an event after it."""
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
        """Look until `stop` is called."""
        while not self._stopped.wait(self._seconds / _LOOKS):
            with self._lock:
                late = [work for device in list(self._work) if (work := self._late(device)) is not None]
            for work in late:
                self._report(self._message(work))

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def _late(self, device: Device) -> _Work | None:
        """The oldest work of a device if it has been the oldest for too long, once."""
        self._advance(device)
        oldest = next(iter(self._work[device]), None)
        if oldest is None or oldest.reported or self._waited(oldest) < self._seconds:
            return None
        oldest.reported = True
        return oldest

    def _advance(self, device: Device) -> None:
        """Forget what is done at the front of a device's work."""
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
        """Seconds since the work began, or since what was before it ended."""
        return time.monotonic() - max(work.began, self._progress.get(work.call.device, 0.0))

    def _message(self, work: _Work) -> str:
        call, rest = work.call, len(self._work[work.call.device]) - 1
        behind = f", {rest} ops wait behind it" if rest > 0 else ""
        return message(
            "watchdog", f"{call.op.name} has not ended after {self._waited(work):.1f} s{behind}",
            expected=f"at most {self._seconds:g} s", device=call.device,
            fix=f"it was called {work.location} and runs as {call.resolution.how}",
        )  # fmt: skip


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def watchdog(seconds: float, report: Callable[[str], None] | None = None) -> Iterator[None]:
    """Report by name what has not ended after so many seconds inside the block: `with polyhal.watchdog(30): train()`.

    The message names op, line, module, kernel and device, and goes to standard error, or to `report`. Nothing is stopped: a
    driver cannot be made to give up a kernel. Ops of all threads are watched. Captured steps run call by call meanwhile.
    `POLYHAL_WATCHDOG=30` in the environment watches a whole program. Raises ValueError unless `seconds` is above 0.
    """
    from polyhal.hal.checks.modes import observing
    from polyhal.hal.checks.scoped import scoped

    dog = started(seconds, report)
    try:
        with scoped(), observing(dog):
            yield
    finally:
        dog.stop()


def started(seconds: float, report: Callable[[str], None] | None = None) -> Watchdog:
    """A watchdog whose thread runs. Raises ValueError unless `seconds` is above 0."""
    if not seconds > 0:
        raise ValueError(message("watchdog", f"got {seconds!r} seconds", expected="more than 0"))
    dog = Watchdog(seconds, report)
    threading.Thread(target=dog.run, name="polyhal watchdog", daemon=True).start()
    return dog
