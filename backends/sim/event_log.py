"""The event log: every step of driver and device, with handles, sizes, addresses and virtual times.

Host and device threads append concurrently. Entries are therefore sorted when they are read, by time, then by command,
so that two runs of a program yield the same text.
"""

from __future__ import annotations

import enum
import json
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HOST = "host"
"""Track of the driver's steps."""


class Action(enum.StrEnum):
    """Kinds of steps."""

    ALLOCATE = "allocate"
    WRITE = "write"
    """The host enqueues a copy to the device."""
    READ = "read back"
    """The host enqueues a copy from the device."""
    BUILD = "build"
    SUBMIT = "submit"
    DOORBELL = "doorbell"
    EXECUTE = "execute"
    TRANSFER = "transfer"
    WAIT = "wait"
    INTERRUPT = "interrupt"
    CALLBACK = "callback"
    FAULT = "fault"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One step."""

    start_ns: int
    end_ns: int
    device: str
    lane: str
    """Track of the step: `host`, `compute`, `DMA 0`, `interrupts`."""
    action: Action
    text: str
    sequence: int = 0
    """Sequence number of its command; 0 for none."""
    details: dict[str, Any] = field(default_factory=dict)
    """Handles, addresses and sizes, by name."""

    def __str__(self) -> str:
        """Return the step as one line."""
        took = f"{(self.end_ns - self.start_ns) / 1000:>10.3f}" if self.end_ns > self.start_ns else " " * 10
        command = f"#{self.sequence}" if self.sequence else ""
        return f"{self.start_ns / 1000:>12.3f} {took}  {self.lane:<10} {self.action:<10} {command:>6}  {self.text}"


class EventLog:
    """The steps of one or more devices."""

    def __init__(self) -> None:
        self.outer: EventLog | None = None
        """Enclosing log, which also receives all steps."""
        self._entries: list[tuple[int, int, int, LogEntry]] = []
        self._host = 0
        self._lock = threading.Lock()

    def add(
        self,
        action: Action,
        text: str,
        *,
        device: str,
        lane: str = HOST,
        start_ns: int,
        end_ns: int = 0,
        sequence: int = 0,
        **details: Any,
    ) -> None:
        """Add a step. Without `end_ns` its duration is 0."""
        if self.outer is not None:
            self.outer.add(
                action, text, device=device, lane=lane, start_ns=start_ns, end_ns=end_ns, sequence=sequence, **details
            )
        entry = LogEntry(start_ns, max(end_ns, start_ns), device, lane, action, text, sequence, details)
        with self._lock:
            # Ties in time: host steps in insertion order, then device steps by command.
            self._host += lane == HOST
            self._entries.append((start_ns, lane != HOST, sequence if lane != HOST else self._host, entry))

    def entries(self) -> list[LogEntry]:
        """Return all steps in the order of virtual time."""
        with self._lock:
            return [entry for *_, entry in sorted(self._entries, key=lambda e: e[:3])]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._entries)

    def text(self) -> str:
        """Return all steps as a table: start and duration in microseconds, track, action, command, text."""
        title = f"{'start us':>12} {'takes us':>10}  {'lane':<10} {'action':<10} {'':>6}  details"
        return "\n".join([title, *map(str, self.entries())])

    def to_json(self) -> list[dict[str, Any]]:
        """Return all steps as plain data."""
        return [asdict(entry) for entry in self.entries()]

    def chrome_trace(self) -> dict[str, Any]:
        """Return the steps in the Trace Event Format, which chrome://tracing and Perfetto display; one row per track."""
        events = []
        for e in self.entries():
            where = {"pid": e.device, "tid": e.lane, "ts": e.start_ns / 1000}
            what = {"name": e.text, "cat": e.action.value, "args": {**e.details, "command": e.sequence}}
            span = (
                {"ph": "X", "dur": (e.end_ns - e.start_ns) / 1000} if e.end_ns > e.start_ns else {"ph": "i", "s": "t"}
            )
            events.append({**what, **span, **where})
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def save(self, path: str | Path) -> None:
        """Write the log to a file: as JSON (`.json`), as a Chrome trace (`.trace.json`), or else as text."""
        path = Path(path)
        if path.name.endswith(".trace.json"):
            text = json.dumps(self.chrome_trace())
        elif path.suffix == ".json":
            text = json.dumps(self.to_json(), indent=1)
        else:
            text = self.text() + "\n"
        path.write_text(text, encoding="utf-8")
