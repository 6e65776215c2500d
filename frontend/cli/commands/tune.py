"""`polyhal tune`: search for the fastest tile and group sizes of a device's kernels, and store them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, count, kernel_time, plain_table, print_json, say, status_line
from polyhal.cli.reporting import fail, reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.core.kernels.tuning import Key, TunedChoice
    from polyhal.hal.device import Device

_TRIAL_TIMEOUT = 60.0
"""Timeout in seconds for one candidate to build, run and be checked."""
_MAX_RESTARTS = 8
"""Maximum number of crashes of a search."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@reported
def tune(
    device: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names,
            help="The device, as named by [bold]polyhal devices[/]. Default: the default device.",
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="How long to search, as in 90s or 10m.")] = "60s",
    only: Annotated[str, typer.Option(help="Tune only kernel families whose name contains this, as in matmul.")] = "",
    show: Annotated[bool, typer.Option("--show", help="Print the stored choices; do not search.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Delete the stored choices; do not search.")] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write the stored choices to this file; do not search.", show_default=False)
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", help="Add the choices in an exported file; do not search.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Search for the fastest settings of a device's kernels and keep those that are clearly faster.

    The search runs in a subprocess. Every candidate is checked against the reference, and the winner is timed against
    the default once more, in alternation.
    """
    from rich.console import Console

    from polyhal.hal.core.kernels import tuning
    from polyhal.hal.device import Device

    seconds = _seconds(budget)
    target, console = Device(device), Console(highlight=False, stderr=as_json)
    tuning.tunables(target)
    info = target.info
    if import_ is not None:
        imported = tuning.read(import_, info)
        tuning.add(info, imported)
        say(console, f"{count(len(imported), 'choice')} imported from {import_}")
    elif reset:
        tuning.path(info).unlink(missing_ok=True)
        console.print(f"{target.name} uses its defaults again", markup=False)
    elif export is not None:
        tuning.write(export, info, tuning.load(info))
        say(console, f"{count(len(tuning.load(info)), 'choice')} written to {export}")
    elif show and not as_json:
        _print_choices(console, tuning.load(info))
    elif not show and not _search(console, target, seconds, only):
        raise typer.Exit(1)
    if as_json:
        choices = [asdict(choice) for choice in tuning.load(info).values()]
        print_json("tune", {"device": target.name, "file": tuning.path(info), "choices": choices})


def _seconds(text: str) -> float:
    """Parse a positive duration such as 90s or 10m. Raises BadParameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if not match or match.group(2) not in _UNITS or not float(match.group(1)):
        raise typer.BadParameter(f"{text!r} is not a duration; expected 60s or 5m, for example", param_hint="--budget")
    return float(match.group(1)) * _UNITS[match.group(2)]


@dataclass(slots=True)
class _SearchState:
    """State of a search, which continues in another worker after a crash."""

    results: list[dict[str, Any]] = field(default_factory=list)
    skip: list[tuple[Any, Any]] = field(default_factory=list)
    """Candidates that crashed or hung a worker, as (key, values)."""
    trial: tuple[Any, Any] | None = None
    """Candidate in progress."""
    problem: str = ""

    def add(self, content: dict[str, Any]) -> None:
        """Update the state by one event of a worker."""
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
    """Search, print and store the results. Returns whether the search succeeded."""
    from polyhal.hal.core.kernels import tuning

    say(console, f"tuning {device.name}: {device.info.name}, {device.info.driver}")
    state, end = _SearchState(), time.monotonic() + budget
    while (left := end - time.monotonic()) > 0 and len(state.skip) < _MAX_RESTARTS:
        if _search_in_subprocess(console, device, left, only, state):
            break
    if state.problem:
        fail(state.problem)
    if state.results:
        choices = {f.key: f for f in (tuning.TunedChoice.from_json(r["found"]) for r in state.results)}
        tuning.add(device.info, choices)
        _print_results(console, state.results)
        say(console, f"stored in {tuning.path(device.info)}")
    elif not state.problem:
        fail("nothing was tuned: no kernel of this device has tunables")
    return bool(state.results) and not state.problem


def _search_in_subprocess(console: Console, device: Device, seconds: float, only: str, state: _SearchState) -> bool:
    """Search in one worker. Returns False if a candidate crashed it and the search should continue in another worker."""
    from polyhal.cli.workers.pool import WorkerPool

    done = [(r["found"]["family"], r["found"]["shape_class"]) for r in state.results]
    request = {"device": device.name, "budget": seconds, "only": only, "done": done, "skip": state.skip}
    failure = ""
    with status_line(console, "building the defaults") as update:
        try:
            with WorkerPool("polyhal.cli.workers.search", [[json.dumps(request)]]) as pool:
                for message in pool.messages(_TRIAL_TIMEOUT):
                    if message.exit_code is None:
                        state.add(message.content)
                        if state.trial:
                            (family, shape), values = state.trial
                            update(f"{family} {shape}: {_text(values)}")
                    elif message.exit_code and not state.problem:
                        stderr = message.stderr or "no output"
                        failure = f"the process exited with code {message.exit_code}: {stderr}"
        except TimeoutError as error:
            failure = str(error)
    if not failure:
        return True
    if state.trial is None:
        state.problem = failure
        return True
    (family, shape), values = state.trial
    console.print(f"{family} {shape} with {_text(values)} is skipped: {failure}", style="yellow", markup=False)
    state.skip.append(state.trial)
    state.trial = None
    return False


def _text(values: dict[str, int]) -> str:
    return ", ".join(f"{k} {v}" for k, v in values.items()) or "the defaults"


def _print_results(console: Console, results: list[dict[str, Any]]) -> None:
    figures = ("before", "after", "speedup", "tried", "wrong")
    table = plain_table("kernel", "shape class", "change", *figures, right=figures)
    for r in results:
        found, values = r["found"], r["found"]["values"]
        change = ", ".join(f"{name} {r['default'][name]} → {value}" for name, value in values.items())
        tried = f"{r['tried']}" + (f" of {r['tried'] + r['left']}" if r["left"] else "")
        table.add_row(
            found["family"],
            found["shape_class"],
            change or "keep the default",
            kernel_time(r["default_seconds"]),
            kernel_time(r["seconds"]) if values else "",
            f"{found['speedup']:.2f}x" if values else "",
            tried,
            str(r["refused"]) if r["refused"] else "",
            style="bold" if values else "",
        )
    console.print(table)


def _print_choices(console: Console, choices: dict[Key, TunedChoice]) -> None:
    if not choices:
        console.print("no choices are stored: every kernel uses its defaults; run `polyhal tune`")
        return
    table = plain_table("kernel", "shape class", "best", "speedup", "measured on")
    for key in sorted(choices):
        f = choices[key]
        table.add_row(
            f.family,
            f.shape_class,
            _text(f.values) if f.values else "default",
            f"{f.speedup:.2f}x" if f.values else "",
            f.date,
        )
    console.print(table)
