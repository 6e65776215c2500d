"""Supervision of `worker` processes: a time limit for each, and a restart after an item that crashed its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyhal.reports import worker

START = 120.0
"""Seconds of a process in addition to its items: to import, to open a device, to exit."""
_RESTARTS = 3
_PATIENCE = 10.0
"""Seconds to wait for a killed process: its driver may block in the kernel indefinitely."""


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
) -> TaskResult:
    """Run a task of `worker` for about `seconds`, restarting its process up to three times after crashes."""
    result, begin = TaskResult(), time.monotonic()
    end = begin + seconds
    for _ in range(_RESTARTS + 1):
        left = max(end - time.monotonic(), 0.0)
        skip = sorted({e["item"] for e in result.events if "item" in e})
        asked = {**request, "seconds": left, "limit": limit, "skip": skip}
        events, ending = _run(asked, left + limit + start, environment or {})
        result.events += events
        begun = next((e["item"] for e in reversed(events) if e["event"] == "begin"), None)
        if events and events[-1]["event"] == "begin" and begun is not None:
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


def _run(request: Mapping[str, Any], limit: float, environment: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
    """Return the events of one process, and a description of its failure; empty if it exited normally."""
    settings = {
        "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
        "POLYHAL_MEASURE_TIMEOUT": "0",
        "POLYHAL_BUILD_AHEAD": "0",  # background kernel builds would disturb the timings
        **environment,
    }
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "polyhal.reports.worker"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=errors,
            env=os.environ | settings,
            start_new_session=os.name == "posix",  # so that child processes of drivers are killed, too
        )
        try:
            process.communicate(json.dumps(request).encode(), timeout=limit)
            ending = ""
        except subprocess.TimeoutExpired:
            ending = f"no answer within {limit:g} s"
        finally:
            _kill(process)
        out.seek(0)
        events = list(worker.parse(out.read().decode(errors="replace")))
        errors.seek(0)
        return events, ending or _ending(process.returncode, events, errors.read().decode(errors="replace"), request)


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
