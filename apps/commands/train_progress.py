"""Progress of a training run: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.text import Text

from polyhal.cli.display import duration, is_live, say
from polyhal.cli.progress_bar import ProgressBar
from polyhal.training import MetricsRow, RunObserver, Session

_LINE_INTERVAL = 5.0
"""Seconds between plain lines; every evaluation prints a line in addition."""


class TrainProgress(RunObserver, Protocol):
    """An observer of a session that is shown while its context is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def train_progress(console: Console, session: Session) -> TrainProgress:
    """Create a bar on a terminal that can move its cursor, plain lines elsewhere."""
    return _TrainBar(console, session) if is_live(console) else _TrainLines(console, session)


class _StepClock:
    """Estimates the remaining time from the steps since its creation."""

    def __init__(self, done: int, total: int) -> None:
        self._begin = time.perf_counter()
        self._first = done
        self._total = total

    def remaining(self, step: int) -> float | None:
        """Return the remaining seconds; None before the first step."""
        steps = step - self._first
        if steps < 1:
            return None
        return (time.perf_counter() - self._begin) / steps * (self._total - step)


class _RemainingColumn(ProgressColumn):
    """Estimated remaining time, including evaluations and samples."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        return Text(f"ETA {duration(task.fields['clock'].remaining(int(task.completed)))}", style="progress.remaining")


class _TrainBar:
    """A bar at the bottom of the terminal; evaluations and samples scroll by above it."""

    def __init__(self, console: Console, session: Session) -> None:
        self._console = console
        done, total = session.trainer.done, session.trainer.options.steps
        self._steps_per_epoch = session.trainer.steps_per_epoch
        self._progress = ProgressBar(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(bar_width=None),
            TextColumn(
                "epoch {task.fields[epoch]:.2f}  loss {task.fields[loss]}  val {task.fields[val]}  "
                "{task.fields[speed]} tok/s"
            ),
            _RemainingColumn(),
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
            val=_format_loss(session.best),
            speed="-",
            clock=_StepClock(done, total),
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

    def logged(self, row: MetricsRow) -> None:
        fields: dict[str, Any] = {
            "loss": _format_loss(row.loss),
            "epoch": row.epoch,
            "speed": f"{row.tokens_per_s:,.0f}",
        }
        if row.val_loss is not None:
            fields["val"] = _format_loss(row.val_loss)
            line = f"step {row.step}: loss {row.loss:.4f}, validation loss {row.val_loss:.4f}"
            self._console.print(line, style="cyan", highlight=False)
        self._progress.update(self._task, **fields)

    def sampled(self, step: int, prompt: str, text: str) -> None:
        _print_sample(self._console, step, prompt, text)

    def rebalanced(self, step: int, text: str) -> None:
        _print_division(self._console, step, text)

    def saved(self, name: str, step: int) -> None:
        """No-op: the bar does not show checkpoints."""


class _TrainLines:
    """A line every few seconds, for log files and pipes."""

    def __init__(self, console: Console, session: Session) -> None:
        self._console = console
        self._total = session.trainer.options.steps
        self._clock = _StepClock(session.trainer.done, self._total)
        self._printed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No-op: there is no state to restore."""

    def stepped(self, step: int) -> None:
        """No-op: only logged steps are printed."""

    def logged(self, row: MetricsRow) -> None:
        now = time.perf_counter()
        if row.val_loss is None and now - self._printed < _LINE_INTERVAL:
            return
        self._printed = now
        validation = "" if row.val_loss is None else f"  val {row.val_loss:.4f}"
        say(
            self._console,
            f"step {row.step}/{self._total}  epoch {row.epoch:.2f}  loss {row.loss:.4f}{validation}  lr {row.lr:.2e}  "
            f"{row.tokens_per_s:,.0f} tok/s  ETA {duration(self._clock.remaining(row.step))}",
        )

    def sampled(self, step: int, prompt: str, text: str) -> None:
        _print_sample(self._console, step, prompt, text)

    def rebalanced(self, step: int, text: str) -> None:
        _print_division(self._console, step, text)

    def saved(self, name: str, step: int) -> None:
        """No-op: the summary at the end lists the files."""


def _print_sample(console: Console, step: int, prompt: str, text: str) -> None:
    """Print a sample, with its prompt dimmed."""
    console.print(f"\nsample at step {step}:", style="bold", highlight=False)
    console.print(Text(prompt, style="dim") + Text(text), soft_wrap=True)
    console.print()


def _print_division(console: Console, step: int, text: str) -> None:
    say(console, f"step {step}: new division: {text}")


def _format_loss(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.3f}"
