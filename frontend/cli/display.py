"""Terminal output of commands: units, tables, plain lines, a status line, and JSON."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


JSON_SCHEMA = 1
"""Number of the form that the JSON of all commands has."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""Option of commands that print facts."""


def print_json(command: str, facts: Mapping[str, Any]) -> None:
    """Print the facts of a command as one object of indented JSON. Types that JSON lacks are converted to strings.

    Numbers that are not finite become null.
    """
    json.dump({"schema": JSON_SCHEMA, "command": command, **_finite(facts)}, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


@contextmanager
def printing_json() -> Iterator[None]:
    """Send the output of the program in the block to standard error: standard output is for the JSON of the command."""
    output, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = output


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def say(console: Console, line: str, style: str = "") -> None:
    """Print one line without markup or wrapping, so that paths can be copied and searched for."""
    console.print(line, style=style, markup=False, soft_wrap=True)


def say_wrapped(console: Console, line: str, style: str = "") -> None:
    """Print a line of prose; on a terminal wrapped at words, with two more columns of indentation.

    Words that are longer than a line, such as paths, are not broken.
    """
    if not console.is_terminal:
        say(console, line, style)
        return
    margin = len(line) - len(line.lstrip())
    hanging = 2
    width = max(console.width - margin - hanging, 1)
    parts = textwrap.wrap(line.strip(), width, break_long_words=False, break_on_hyphens=False)
    for number, part in enumerate(parts):
        say(console, " " * (margin + (hanging if number else 0)) + part, style)


def is_live(console: Console) -> bool:
    """Return whether the console is a terminal that can move its cursor, so that a line can be redrawn."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def status_line(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with `text` on a terminal, and nothing elsewhere. Yields a function that changes the text."""
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(text) as status:
        yield lambda text: status.update(text)


def plain_table(*titles: str, right: Iterable[str] = ()) -> Table:
    """Return an empty table without borders. Columns in `right` align right without wrapping; others wrap between words."""
    from polyhal.cli.fitted_table import FittedTable

    out = FittedTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    numeric = set(right)
    for title in titles:
        if title in numeric:
            out.add_column(title, justify="right", no_wrap=True)
        else:
            out.add_column(title, overflow="fold")
    return out


def memory(nbytes: int) -> str:
    """Format a number of bytes in KiB, MiB or GiB; "unknown" for 0."""
    if not nbytes:
        return "unknown"
    if nbytes >= 2**30:
        return f"{nbytes / 2**30:.1f} GiB"
    return f"{nbytes / 2**20:.0f} MiB" if nbytes >= 10 << 20 else f"{nbytes / 2**10:,.0f} KiB"


def count(number: int, singular: str, plural: str = "") -> str:
    """Format a number with its noun, as in "1 kernel" and "2 kernels"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def duration(seconds: float | None) -> str:
    """Format seconds as m:ss or h:mm:ss."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def kernel_time(seconds: float) -> str:
    """Format the time of one kernel call, in ms or us."""
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


__all__ = [
    "Json",
    "count",
    "duration",
    "is_live",
    "kernel_time",
    "memory",
    "plain_table",
    "print_json",
    "printing_json",
    "say",
    "say_wrapped",
    "status_line",
]
