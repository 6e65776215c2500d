"""Progress of a run of the conformance kit: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from polyhal.cli.display import is_live, say
from polyhal.cli.progress_bar import ProgressBar
from polyhal.hal.testing.certification.certify import KitObserver
from polyhal.hal.testing.certification.runner import Outcome

_LINE_INTERVAL = 5.0
"""Seconds between plain lines."""
_NAME_WIDTH = 32
"""Width of a check's name next to the bar; a fixed width keeps the bar from jumping."""


class VerifyProgress(KitObserver, Protocol):
    """An observer of a run that is shown while its context is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def verify_progress(console: Console) -> VerifyProgress:
    """Create a bar on a terminal that can move its cursor, plain lines elsewhere."""
    return _VerifyBar(console) if is_live(console) else _VerifyLines(console)


class _VerifyBar:
    """A bar at the bottom of the terminal; failures scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._failed = 0
        self._progress = ProgressBar(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            expand=True,
            transient=True,
            refresh_per_second=8,
        )
        self._task = self._progress.add_task("", total=None, failed="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def started(self, cases: int) -> None:
        self._progress.update(self._task, total=cases)

    def ran(self, outcome: Outcome) -> None:
        if outcome.problem:
            self._failed += 1
            _print_failed(self._console, outcome)
        name = f"{outcome.id[:_NAME_WIDTH]:{_NAME_WIDTH}}"
        failed = f"[red]{self._failed} failed[/]" if self._failed else ""
        self._progress.update(self._task, advance=1, description=escape(name), failed=failed)

    def stage(self, text: str) -> None:
        self._progress.update(self._task, visible=False)
        self._console.print(text, markup=False)


class _VerifyLines:
    """A line every few seconds, for log files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = self._failed = 0
        self._printed = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No-op: there is no state to restore."""

    def started(self, cases: int) -> None:
        self._total = cases

    def ran(self, outcome: Outcome) -> None:
        self._done += 1
        if outcome.problem:
            self._failed += 1
            _print_failed(self._console, outcome)
        now = time.perf_counter()
        if now - self._printed >= _LINE_INTERVAL:
            self._printed = now
            say(self._console, f"{self._done}/{self._total} checks, {self._failed} failed, last {outcome.id}")

    def stage(self, text: str) -> None:
        say(self._console, text)


def _print_failed(console: Console, outcome: Outcome) -> None:
    say(console, f"failed: {outcome.id}", "red")
