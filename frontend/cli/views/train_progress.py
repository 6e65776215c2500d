"""How a training run looks: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from polyhal.training import Row, Session

_LINE_INTERVAL = 5.0
"""Seconds between plain lines, except that every evaluation gets one."""


class Display(Protocol):
    """An observer of a session that is shown while the context is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def stepped(self, step: int) -> None: ...

    def logged(self, row: Row) -> None: ...

    def sampled(self, step: int, prompt: str, text: str) -> None: ...

    def saved(self, name: str, step: int) -> None: ...


def make_display(console: Console, session: Session) -> Display:
    """A live display where the console is a terminal that can move its cursor, else a plain one."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console, session) if live else PlainDisplay(console, session)


class _Remaining(ProgressColumn):
    """The time left at the speed so far, evaluations and samples included."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        return Text(f"ETA {duration(task.fields['clock'].remaining(int(task.completed)))}", style="progress.remaining")


class Clock:
    """Estimates the time left from the steps taken since it was made."""

    def __init__(self, done: int, total: int) -> None:
        self._begin = time.perf_counter()
        self._first = done
        self._total = total

    def remaining(self, step: int) -> float | None:
        """Seconds, or None before the first step."""
        taken = step - self._first
        if taken < 1:
            return None
        return (time.perf_counter() - self._begin) / taken * (self._total - step)


class LiveDisplay:
    """One line at the bottom that moves, with samples scrolling by above it."""

    def __init__(self, console: Console, session: Session) -> None:
        self._console = console
        done, total = session.trainer.done, session.trainer.options.steps
        self._steps_per_epoch = session.trainer.steps_per_epoch
        self._progress = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(bar_width=None),
            TextColumn(
                "epoch {task.fields[epoch]:.2f}  loss {task.fields[loss]}  val {task.fields[val]}  "
                "{task.fields[speed]} tok/s"
            ),
            _Remaining(),
            console=console,
            expand=True,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task(
            "",
            total=total,
            completed=done,
            epoch=done / self._steps_per_epoch,
            loss="-",
            val=figure(session.best),
            speed="-",
            clock=Clock(done, total),
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def stepped(self, step: int) -> None:
        self._progress.update(self._task, completed=step, epoch=step / self._steps_per_epoch)

    def logged(self, row: Row) -> None:
        fields: dict[str, Any] = {"loss": figure(row.loss), "epoch": row.epoch, "speed": f"{row.tokens_per_s:,.0f}"}
        if row.val_loss is not None:
            fields["val"] = figure(row.val_loss)
            self._console.print(
                f"step {row.step}: loss {row.loss:.4f}, validation loss {row.val_loss:.4f}",
                style="cyan",
                highlight=False,
            )
        self._progress.update(self._task, **fields)

    def sampled(self, step: int, prompt: str, text: str) -> None:
        print_sample(self._console, step, prompt, text)

    def saved(self, name: str, step: int) -> None:
        """The bar says enough."""


class PlainDisplay:
    """Lines for log files and pipes."""

    def __init__(self, console: Console, session: Session) -> None:
        self._console = console
        self._total = session.trainer.options.steps
        self._clock = Clock(session.trainer.done, self._total)
        self._printed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to restore."""

    def stepped(self, step: int) -> None:
        """Nothing moves between lines."""

    def logged(self, row: Row) -> None:
        now = time.perf_counter()
        if row.val_loss is None and now - self._printed < _LINE_INTERVAL:
            return
        self._printed = now
        validation = "" if row.val_loss is None else f"  val {row.val_loss:.4f}"
        self._print(
            f"step {row.step}/{self._total}  epoch {row.epoch:.2f}  loss {row.loss:.4f}{validation}  lr {row.lr:.2e}  "
            f"{row.tokens_per_s:,.0f} tok/s  ETA {duration(self._clock.remaining(row.step))}"
        )

    def sampled(self, step: int, prompt: str, text: str) -> None:
        print_sample(self._console, step, prompt, text)

    def saved(self, name: str, step: int) -> None:
        """The summary says where."""

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_sample(console: Console, step: int, prompt: str, text: str) -> None:
    """A sample with its prompt set off."""
    console.print(f"\nsample at step {step}:", style="bold", highlight=False)
    console.print(Text(prompt, style="dim") + Text(text), soft_wrap=True)
    console.print()


def figure(loss: float | None) -> str:
    """A loss for people."""
    return "-" if loss is None else f"{loss:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds as m:ss or h:mm:ss."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
