"""Trials: plug-ins are loaded, probed and opened in a separate process before this process does the same.

`python -m polyhal.hal.core.plugins.trial SUBJECTS` tries subjects in order and prints one line of JSON per step. If a
driver ends or blocks that process, the last step identifies the plug-in, and a new process continues with the next
subject.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import EntryPoint
from typing import Any

from polyhal.hal.core.plugins import entry_points, probing
from polyhal.hal.core.plugins.python_process import NoPythonError, command, environment
from polyhal.hal.core.plugins.timeout import NoAnswerError, within
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.processes import signal_name
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP, BackendSpec

_OPENING = 3.0
"""Factor between the time limits of opening a device and of listing devices."""
_START = 30.0
"""Seconds, in addition to the limit of a step, for the start of the process on a busy machine."""
_SPARE = 3.0
"""Seconds, in addition to the limit of a step, after which a process without a report is stuck."""
_LONGEST_REASON = 300
"""Largest number of characters of the last line of a process in a message."""
_MARK = "polyhal-trial"


@dataclass(frozen=True, slots=True)
class Subject:
    """An entry point to load, or one of its backends to probe and open."""

    point: str
    value: str
    backend: str = ""
    """Name of the backend; empty if the entry point is loaded only."""
    skipped: tuple[str, ...] = ()
    """Selectors of devices that are not opened."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of a trial: problems that would have ended or blocked this process, other than exceptions."""

    problem: str = ""
    fix: str = ""
    devices: dict[str, str] = field(default_factory=dict)
    """Problems of single devices, by selector."""


class TrialUnavailableError(RuntimeError):
    """A process for trials cannot be started."""


def run(subjects: Sequence[Subject]) -> list[TrialOutcome]:
    """Try all subjects. Raises TrialUnavailableError if no process can be started."""
    outcomes = [TrialOutcome() for _ in subjects]
    waiting = list(enumerate(subjects))
    while waiting:
        trial = _Trial([subject for _, subject in waiting])
        death = trial.follow()
        for (number, _), found in zip(waiting, trial.outcomes, strict=False):
            outcomes[number] = replace(found, devices=outcomes[number].devices | found.devices)
        if not death:
            break
        if not trial.outcomes:
            raise TrialUnavailableError(f"the process of the trial failed at its start: {death}")
        number, subject = waiting[len(trial.outcomes) - 1]
        if trial.opening is None:
            source = subject.backend or subject.point
            outcomes[number] = TrialOutcome(
                f"{trial.step} {death}", entry_points.crash_fix(f"POLYHAL_DISABLE={source}")
            )
            waiting = waiting[len(trial.outcomes) :]
        else:
            outcomes[number].devices[trial.opening] = f"{trial.step} {death}"
            again = replace(subject, skipped=(*subject.skipped, *outcomes[number].devices))
            waiting = [(number, again), *waiting[len(trial.outcomes) :]]
    return outcomes


class _Trial:
    """One process and its answers so far."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._subjects = subjects
        self.outcomes: list[TrialOutcome] = []
        """Outcomes of started subjects."""
        self.step = ""
        """The step in progress, as the beginning of a sentence."""
        self.opening: str | None = None
        """Selector of the device that is being opened."""
        self._limit = env.probe_timeout()
        self._said = ""
        """Last line that is not an answer, such as a failed assertion of a driver."""
        self._done = False

    def follow(self) -> str:
        """Read the answers of the process to its end. Returns how it ended early or blocked; empty if it finished."""
        try:
            process = subprocess.Popen(
                command("polyhal.hal.core.plugins.trial", json.dumps([asdict(s) for s in self._subjects])),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment(POLYHAL_TRIALS="0", POLYHAL_BUILD_AHEAD="0"),
            )
        except (NoPythonError, OSError) as error:
            raise TrialUnavailableError(str(error)) from error
        try:
            for line in _lines(process, lambda: self._limit + (_SPARE if self.step else _START)):
                self._take(line)
        except NoAnswerError:
            return f"gave no answer within {self._limit:g} s"
        finally:
            with contextlib.suppress(OSError):
                process.kill()
            code = process.wait()
        said = f": {self._said}" if self._said else ""
        return "" if self._done else _ending(code) + said

    def _take(self, line: str) -> None:
        """Process one line of output. A line without the mark was printed by a plug-in."""
        try:
            mark, kind, text, selector = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            mark = kind = ""
        if mark != _MARK:
            self._said = line.strip()[:_LONGEST_REASON] or self._said
            return
        if kind == "begin":
            self.outcomes.append(TrialOutcome())
        elif kind == "step":
            self.step, self.opening, self._said = text, selector, ""
            self._limit = env.probe_timeout() * (1.0 if selector is None else _OPENING)
        elif kind == "hung" and selector is not None:
            self.outcomes[-1].devices[selector] = text
        elif kind == "hung":
            subject = self._subjects[len(self.outcomes) - 1]
            source = subject.backend or subject.point
            self.outcomes[-1] = TrialOutcome(text, entry_points.slow_plugin_fix(f"POLYHAL_DISABLE={source}"))
        self._done = kind == "done"


def _lines(process: subprocess.Popen[str], limit: Any) -> Iterator[str]:
    """Yield the lines of a process. Raises NoAnswerError if the next one takes longer than `limit()` seconds."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:  # ends with the last process that holds the pipe
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, name="polyhal: read a trial", daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=limit())
        except queue.Empty:
            raise NoAnswerError from None
        if line is None:
            return
        yield line


def _ending(code: int) -> str:
    """Return the end of a process, as the end of a sentence."""
    return f"ended the process with code {code}" if code >= 0 else f"ended the process by {signal_name(-code)}"


def main(text: str) -> None:
    """Try the subjects in `text` and print each step. Exceptions are ignored, because they will recur in the parent process."""
    for item in json.loads(text):
        subject = Subject(**item)
        _say("begin")
        point = EntryPoint(subject.point, subject.value, ENTRY_POINT_GROUP)
        with contextlib.suppress(BaseException):
            _try(subject, point)
    _say("done")
    sys.stdout.flush()
    os._exit(0)  # skips exit handlers of drivers, and does not wait for the thread of a step that hangs


def _try(subject: Subject, point: EntryPoint) -> None:
    _say("step", "loading it")
    try:
        specs = entry_points.load(point)
    except entry_points.PluginError as error:
        if isinstance(error.__cause__, NoAnswerError):
            _say("hung", f"loading it gave {error.__cause__}")
        raise
    spec = next((s for s in specs if getattr(s, "name", None) == subject.backend), None)
    if subject.backend and spec is not None:
        _probe(subject, spec)


def _probe(subject: Subject, spec: BackendSpec) -> None:
    _say("step", "probing for devices")
    try:
        listed = probing.listed(spec)
    except NoAnswerError as error:
        _say("hung", f"probing for devices gave {error}")
        raise
    for info in listed:
        selector = getattr(info, "selector", None)
        if isinstance(selector, str) and selector not in subject.skipped:
            _open(spec, selector)


def _open(spec: BackendSpec, selector: str) -> None:
    _say("step", "opening it", selector)
    try:
        within(env.probe_timeout() * _OPENING, lambda: probing.resolve(spec.create)(selector), f"open {spec.name}")
    except NoAnswerError as error:
        _say("hung", f"opening it gave {error}", selector)
    except BaseException:  # the exception will recur in the parent process
        return


def _say(kind: str, text: str = "", selector: str | None = None) -> None:
    sys.stdout.write(f"\n{json.dumps([_MARK, kind, text, selector])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
