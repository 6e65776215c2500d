"""Supervision of `worker` processes: a time limit for each, and a restart after an item that crashed its process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from polyhal.reports import worker

START = 120.0
"""Seconds of a process in addition to its items: to import, to open a device, to exit."""
_RESTARTS = 3
_PATIENCE = 10.0
"""Seconds to wait for a killed process: its driver may block in the kernel indefinitely."""
_POLL = 0.2
"""Seconds between two questions whether a task has to stop."""


@dataclass(frozen=True, slots=True)
class StopCondition:
    """Time at which a task is stopped even within an item, such as a kernel's build, and a request to stop it earlier."""

    end: float = math.inf
    """Value of `time.monotonic`."""
    requested: Callable[[], bool] = lambda: False

    def reason(self) -> str:
        """Return why a task has to stop now; empty if it may continue."""
        if self.requested():
            return "interrupted"
        return "stopped at the end of its time" if time.monotonic() >= self.end else ""


@dataclass(slots=True)
class TaskResult:
    """Events and failures of a task."""

    events: list[dict[str, Any]] = field(default_factory=list)
    deaths: dict[str, str] = field(default_factory=dict)
    """Items that crashed or hung their process, with descriptions."""
    problem: str = ""
    """Reason if the task ended before its items, or without any."""
    seconds: float = 0.0

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [e for e in self.events if e["event"] == event]


def run_task(
    request: Mapping[str, Any],
    seconds: float,
    *,
    limit: float = worker.ITEM_LIMIT,
    start: float = START,
    environment: Mapping[str, str] | None = None,
    stop: StopCondition | None = None,
) -> TaskResult:
    """Run a task of `worker` for about `seconds`, restarting its process up to three times after crashes.

    Items that `stop` ends are not failures of the device: the result's `problem` names them.
    """
    result, begin, stop = TaskResult(), time.monotonic(), stop or StopCondition()
    end = begin + seconds
    for _ in range(_RESTARTS + 1):
        result.problem = stop.reason()
        if result.problem:
            break
        left = max(end - time.monotonic(), 0.0)
        skip = sorted({e["item"] for e in result.events if "item" in e})
        asked = {**request, "seconds": left, "limit": limit, "skip": skip}
        events, ending, stopped = _run(asked, left + limit + start, environment or {}, stop)
        result.events += events
        begun = events[-1]["item"] if events and events[-1]["event"] == "begin" else ""
        if stopped:
            result.problem = ending + (f", in {begun}" if begun else "")
            break
        if begun:
            result.deaths[begun] = ending or "the process ended"
        elif ending:
            result.problem = ending
            break
        elif not _lost(events):
            break
        if time.monotonic() > end:
            break
    else:
        result.problem = f"given up after {_RESTARTS + 1} processes that ended early"
    result.seconds = round(time.monotonic() - begin, 1)
    return result


def _lost(events: list[dict[str, Any]]) -> bool:
    """Return whether the process exited normally after a check that lost the device, so that a new process can continue."""
    checked = [e for e in events if e["event"] == "checked"]
    return bool(checked) and checked[-1].get("lost", False)


def _run(
    request: Mapping[str, Any], limit: float, environment: Mapping[str, str], stop: StopCondition
) -> tuple[list[dict[str, Any]], str, bool]:
    """Return the events of one process, a description of its failure (empty if it exited normally), and if `stop` ended it."""
    settings = {
        "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
        "POLYHAL_MEASURE_TIMEOUT": "0",
        "POLYHAL_BUILD_AHEAD": "0",  # background kernel builds would disturb the timings
        **environment,
    }
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        asked.write(json.dumps(request).encode())
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "polyhal.reports.worker"],
            stdin=asked,
            stdout=out,
            stderr=errors,
            env=os.environ | settings,
            start_new_session=os.name == "posix",  # so that child processes of drivers are killed, too
        )
        try:
            reason, stopped = _wait(process, limit, stop)
        finally:
            _kill(process)
        out.seek(0)
        events = list(worker.parse(out.read().decode(errors="replace")))
        errors.seek(0)
        ending = reason or _ending(process.returncode, events, errors.read().decode(errors="replace"), request)
        return events, ending, stopped


def _wait(process: subprocess.Popen[bytes], limit: float, stop: StopCondition) -> tuple[str, bool]:
    """Wait until a process exits, for at most `limit` seconds. Returns why it is ended, and if by `stop`; "" if it exited."""
    end = time.monotonic() + limit
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL)
            return "", False
        if reason := stop.reason():
            return reason, True
        if time.monotonic() >= end:
            return f"no answer within {limit:g} s", False


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"polyhal: process {process.pid} does not exit: its driver blocks in the kernel\n")


def _ending(code: int | None, events: list[dict[str, Any]], errors: str, request: Mapping[str, Any]) -> str:
    """Describe how a process failed that was not killed at its time limit; empty if it exited normally."""
    if code == 0 and events and events[-1]["event"] == "end":
        return ""
    if events and events[-1]["event"] == "error":
        return str(events[-1]["problem"])
    if code and "Timeout (" in errors:
        return f"no answer within {request['limit']:g} s"
    if code is not None and code < 0:
        return f"the process ended by signal {-code} ({_signal_name(-code)})"
    lines = [line for line in errors.splitlines() if line.strip()]
    return f"the process ended with code {code}" + (f": {lines[-1].strip()}" if lines else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
