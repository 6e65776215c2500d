"""How a run of the conformance kit looks while it runs: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from polyhal.hal.testing.certification.examination import Observer
from polyhal.hal.testing.certification.verification import Outcome

_LINE_INTERVAL = 5.0
"""Seconds between plain lines."""


class Display(Observer, Protocol):
    """An observer of a run that is shown while the context is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_display(console: Console) -> Display:
    """A live display where the console is a terminal that can move its cursor, else a plain one."""
    return LiveDisplay(console) if console.is_terminal and not console.is_dumb_terminal else PlainDisplay(console)


class LiveDisplay:
    """One line at the bottom that moves, with failures scrolling by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._failed = 0
        self._progress = Progress(
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
            _say_failed(self._console, outcome)
        # A name of one width keeps the bar from jumping.
        name = f"{outcome.id[:32]:32}"
        failed = f"[red]{self._failed} failed[/]" if self._failed else ""
        self._progress.update(self._task, advance=1, description=escape(name), failed=failed)

    def stage(self, text: str) -> None:
        self._progress.update(self._task, visible=False)
        self._console.print(text, markup=False)


class PlainDisplay:
    """Lines for log files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = self._failed = 0
        self._printed = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to restore."""

    def started(self, cases: int) -> None:
        self._total = cases

    def ran(self, outcome: Outcome) -> None:
        self._done += 1
        if outcome.problem:
            self._failed += 1
            _say_failed(self._console, outcome)
        now = time.perf_counter()
        if now - self._printed >= _LINE_INTERVAL:
            self._printed = now
            line = f"{self._done}/{self._total} checks, {self._failed} failed, last {outcome.id}"
            self._console.print(line, markup=False, soft_wrap=True)

    def stage(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def _say_failed(console: Console, outcome: Outcome) -> None:
    console.print(f"failed: {outcome.id}", style="red", markup=False, soft_wrap=True)
