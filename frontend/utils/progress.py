"""A progress bar over an iterable: in a terminal, in a notebook, and as lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from html import escape
from typing import Any, TypeVar

T = TypeVar("T")

_INTERVAL = 5.0
"""Seconds between lines in a pipe."""
_REFRESH = 0.2
"""Seconds between updates in a notebook."""


def progress(items: Iterable[T], text: str = "", total: int | None = None) -> Iterator[T]:
    """Yield the items, and show how many were taken, with the speed and the remaining time.

    A terminal shows a bar on standard error, a notebook an HTML bar, and a pipe or a file a line every five seconds. `total` is
    the number of items if the iterable has no length.
    """
    count = len(items) if total is None and isinstance(items, Sized) else total
    shown = _notebook(text, count) or _terminal(text, count) or _lines(text, count)
    show, close = shown
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            show(done)
    finally:
        close(done)


Shown = tuple[Callable[[int], object], Callable[[int], object]]
"""Functions that receive the number of items that are done: after each item, and at the end."""


def _terminal(text: str, total: int | None) -> Shown | None:
    """Return a bar of rich, None if standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from polyhal.cli.display import is_live
    from polyhal.cli.progress_bar import ProgressBar

    console = Console(stderr=True)
    if not is_live(console):
        return None
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn())
    bar = ProgressBar(*columns, console=console, expand=True)
    task = bar.add_task(text, total=total)
    bar.start()

    def close(done: int) -> None:
        bar.update(task, completed=done)
        bar.stop()

    return lambda done: bar.update(task, completed=done), close


def _notebook(text: str, total: int | None) -> Shown | None:
    """Return an HTML bar that a cell updates; None outside of a notebook's kernel."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display

    clock = _ProgressClock(text, total)
    handle = display(HTML(clock.html(0)), display_id=True)
    last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _REFRESH:
            last = time.monotonic()
            handle.update(HTML(clock.html(done)))

    return show, lambda done: handle.update(HTML(clock.html(done)))


def _lines(text: str, total: int | None) -> Shown:
    """Return functions that print lines to standard error, one at the end at least."""
    clock = _ProgressClock(text, total)
    last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _INTERVAL:
            last = time.monotonic()
            print(clock.line(done), file=sys.stderr, flush=True)

    return show, lambda done: print(clock.line(done), file=sys.stderr, flush=True)


class _ProgressClock:
    """Formats a number of items with speed and remaining time."""

    def __init__(self, text: str, total: int | None) -> None:
        self._text, self._total = text, total
        self._begin = time.monotonic()

    def line(self, done: int) -> str:
        """Return the state as text, as in "epoch 3/10, 2.0 per s, 0:04 left"."""
        from polyhal.cli.display import duration

        seconds = max(time.monotonic() - self._begin, 1e-9)
        parts = [f"{self._text} {done}".strip() + (f"/{self._total}" if self._total is not None else "")]
        if done:
            parts.append(f"{done / seconds:.3g} per s")
            if self._total is not None and done < self._total:
                parts.append(f"{duration(seconds / done * (self._total - done))} left")
        return ", ".join(parts)

    def html(self, done: int) -> str:
        """Return the state as an element of HTML, escaped."""
        limit = "" if self._total is None else f" max='{self._total}' value='{done}'"
        return f"<progress{limit}></progress> {escape(self.line(done))}"


__all__ = ["progress"]
