"""`polyhal tune`: find the best tile and group sizes of this device's kernels, and remember them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.reporting import fail, reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.device import Device
    from polyhal.hal.kernels.tuning import Found, Key

_SILENCE = 60.0
"""Seconds that one candidate may take to build, run and be checked."""
_MOST_RESTARTS = 8
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@reported
def tune(
    device: Annotated[
        str | None, typer.Option(help="The device, as [bold]polyhal devices[/] names it; the default if not given.")
    ] = None,
    budget: Annotated[str, typer.Option(help="How long to search, as in 90s or 10m.")] = "60s",
    only: Annotated[str, typer.Option(help="A part of the names of the kernel families to tune, such as matmul.")] = "",
    show: Annotated[bool, typer.Option("--show", help="Print what is known; search nothing.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Forget what is known, and search nothing.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write what is known to this file, and search nothing.")] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", help="Take over what such a file says of this device.")
    ] = None,
) -> None:
    """Search for the best settings of kernels on a device, in a process of its own, and keep what is clearly faster.

    Every candidate is checked against the reference, and the winner is timed against the default once more, in turns.
    """
    from rich.console import Console

    from polyhal.hal.device import Device
    from polyhal.hal.kernels import tuning

    target, console = Device(device), Console(highlight=False)
    tuning.tunables(target)
    info = target.info
    if import_ is not None:
        known = tuning.read(import_, info)
        tuning.write(tuning.path(info), info, {**tuning.load(info), **known})
        console.print(f"{len(known)} choices taken over from {import_}", markup=False, soft_wrap=True)
    elif reset:
        tuning.path(info).unlink(missing_ok=True)
        console.print(f"{target.name} has its defaults again", markup=False)
    elif export is not None:
        tuning.write(export, info, tuning.load(info))
        console.print(f"{len(tuning.load(info))} choices written to {export}", markup=False, soft_wrap=True)
    elif show:
        _show(console, tuning.load(info))
    elif not _search(console, target, _seconds(budget), only):
        raise typer.Exit(1)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if not match or match.group(2) not in _UNITS or not float(match.group(1)):
        raise typer.BadParameter(f"{text!r} is no time; expected something like 60s or 5m", param_hint="--budget")
    return float(match.group(1)) * _UNITS[match.group(2)]


@dataclass(slots=True)
class _Course:
    """A search as it goes on, over several processes where one dies."""

    results: list[dict[str, Any]] = field(default_factory=list)
    skip: list[tuple[Any, Any]] = field(default_factory=list)
    """Candidates that a process did not survive."""
    trial: tuple[Any, Any] | None = None
    problem: str = ""

    def take(self, content: dict[str, Any]) -> None:
        """Note an event."""
        event = content.pop("event", "")
        if event == "trial":
            self.trial = (content["key"], content["values"])
        elif event == "result":
            self.trial = None
            self.results.append(content)
        elif event == "refused":
            self.trial = None
        elif event == "failed":
            self.problem = content["problem"]


def _search(console: Console, device: Device, budget: float, only: str) -> bool:
    """Search, show and remember. Returns whether the search came to its end."""
    from polyhal.hal.kernels import tuning

    console.print(f"tuning {device.name}: {device.info.name}, {device.info.driver}", markup=False, soft_wrap=True)
    course, end = _Course(), time.monotonic() + budget
    while (left := end - time.monotonic()) > 0 and len(course.skip) < _MOST_RESTARTS:
        if _attempt(console, device, left, only, course):
            break
    if course.problem:
        fail(course.problem)
    if course.results:
        known = {f.key: f for f in (tuning.Found.from_json(r["found"]) for r in course.results)}
        tuning.write(tuning.path(device.info), device.info, {**tuning.load(device.info), **known})
        _table(console, course.results)
        console.print(f"kept in {tuning.path(device.info)}", markup=False, soft_wrap=True)
    elif not course.problem:
        what = f"no kernel family has {only!r} in its name" if only else "no kernel of this device has tunables"
        fail(f"nothing was tuned: {what}")
    return bool(course.results) and not course.problem


def _attempt(console: Console, device: Device, seconds: float, only: str, course: _Course) -> bool:
    """Search in one process. Returns whether there is no reason for another one."""
    from polyhal.cli.workers.pool import Workers

    done = [(r["found"]["family"], r["found"]["shape_class"]) for r in course.results]
    request = {"device": device.name, "budget": seconds, "only": only, "done": done, "skip": course.skip}
    status = console.status("building the defaults") if console.is_terminal else None
    if status:
        status.start()
    ended = ""
    try:
        with Workers("polyhal.cli.workers.search", [[json.dumps(request)]], {}) as workers:
            for message in workers.messages(_SILENCE):
                if message.code is None:
                    course.take(message.content)
                    if status and course.trial:
                        (family, shape), values = course.trial
                        status.update(f"{family} {shape}: {_text(values)}")
                elif message.code and not course.problem:
                    ended = f"the process ended with code {message.code}: {message.said or 'it said nothing'}"
    except TimeoutError as error:
        ended = str(error)
    finally:
        if status:
            status.stop()
    if not ended:
        return True
    if course.trial is None:
        course.problem = ended
        return True
    (family, shape), values = course.trial
    console.print(f"{family} {shape} with {_text(values)} is left out: {ended}", style="yellow", markup=False)
    course.skip.append(course.trial)
    course.trial = None
    return False


def _text(values: dict[str, int]) -> str:
    return ", ".join(f"{k} {v}" for k, v in values.items()) or "as it is"


def _table(console: Console, results: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("kernel", "shape class", "change"):
        table.add_column(title, overflow="fold")
    for title in ("before", "after", "speedup", "tried", "wrong"):
        table.add_column(title, justify="right", no_wrap=True)
    for r in results:
        found, values = r["found"], r["found"]["values"]
        change = ", ".join(f"{name} {r['default'][name]} → {value}" for name, value in values.items())
        tried = f"{r['tried']}" + (f" of {r['tried'] + r['left']}" if r["left"] else "")
        table.add_row(
            found["family"], found["shape_class"], change or "keep the default", _time(r["default_seconds"]),
            _time(r["seconds"]) if values else "", f"{found['speedup']:.2f}x" if values else "", tried,
            str(r["refused"]) if r["refused"] else "", style="bold" if values else "",
        )  # fmt: skip
    console.print(table)


def _show(console: Console, known: dict[Key, Found]) -> None:
    from rich.table import Table

    if not known:
        console.print("nothing is known: every kernel has its default; run `polyhal tune`")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("kernel", "shape class", "best", "speedup", "measured on"):
        table.add_column(title, overflow="fold")
    for key in sorted(known):
        f = known[key]
        table.add_row(
            f.family, f.shape_class, _text(f.values) if f.values else "default",
            f"{f.speedup:.2f}x" if f.values else "", f.date,
        )  # fmt: skip
    console.print(table)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
