"""`polyhal bisect`: run a script on two devices, and report the first op whose results diverge."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, count, print_json, say, status_line
from polyhal.cli.reporting import fail, reported

if TYPE_CHECKING:
    from polyhal.hal.system.checks.op_record import OpExecution, Parting

_TIMEOUT = 600.0
"""Timeout in seconds between two ops of a script."""


@reported
def bisect(
    script: Annotated[Path, typer.Argument(help="A Python program.", exists=True, dir_okay=False)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Arguments of the script, after [bold]--[/]; [bold]{device}[/] stands for the device."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names,
            help="Two devices, as in [bold]opencl:0,numpy[/]. Default: the default one and numpy.",
        ),
    ] = None,
    twice: Annotated[
        bool, typer.Option("--twice", help="Run it twice on one device instead, and require the same bits.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a script on two devices, and report the first op whose results diverge, with module and line.

    Each op is also compared with its NumPy reference on the device's own inputs, which distinguishes a wrong kernel from
    rounding errors that accumulate over many ops. The script must use the device that POLYHAL_DEVICE names; this command sets
    it. Random numbers are seeded; captured functions run op by op. Exits with code 1 if results diverge.
    """
    from rich.console import Console

    names = _devices(devices, twice)
    console = Console(highlight=False, stderr=as_json)
    lines, compared = _compare(console, names, script, arguments or [], twice)
    if as_json:
        facts = {"devices": names, "agree": not lines, "ops": compared.count, "largest_difference": compared.largest}
        print_json("bisect", facts | {"difference": lines})
        if lines:
            raise typer.Exit(1)
        return
    if lines:
        fail(lines[0])
        for line in lines[1:]:
            say(console, line)
        raise typer.Exit(1)
    where = f"twice on {names[0]}" if twice else f"on {names[0]} and on {names[1]}"
    result = "with the same bits" if twice else f"and agree within {compared.largest:.2g} of the largest element"
    say(console, f"{count(compared.count, 'op')} ran {where}, {result}")


def _devices(text: str | None, twice: bool) -> list[str]:
    """Return the names of the two devices. Raises BadParameter."""
    from polyhal.hal.device import Device

    names = [n.strip() for n in (text or "").split(",") if n.strip()]
    if not names:
        names = [Device().name, *(() if twice else ("numpy",))]
    if twice:
        names *= 2
    if len(names) != 2:
        expected = "one device with --twice" if twice else "two devices, as in opencl:0,numpy"
        raise typer.BadParameter(
            f"{text!r} names {count(len(names), 'device')}; expected {expected}", param_hint="--devices"
        )
    return [Device(n).name for n in names]


def _compare(
    console: object, names: list[str], script: Path, arguments: list[str], twice: bool
) -> tuple[list[str], Parting]:
    """Return lines about the first op that differs, none if all agree; and the comparison, with its number of ops."""
    from polyhal.cli.workers.pool import WorkerPool
    from polyhal.hal.system.checks.op_record import OpExecution, Parting

    requests = [
        {
            "device": n,
            "script": str(script),
            "arguments": [a.replace("{device}", n) for a in arguments],
            "references": not twice,
        }
        for n in names
    ]
    labels = [f"run {i + 1}" for i in range(2)] if twice else names
    parting = Parting(labels, bits=twice)
    waiting: list[deque[OpExecution]] = [deque(), deque()]
    with (
        status_line(console, "starting") as update,  # type: ignore[arg-type]
        WorkerPool("polyhal.cli.workers.record_ops", [[json.dumps(r)] for r in requests]) as pool,
    ):
        for message in pool.messages(_TIMEOUT):
            if message.exit_code:
                return [f"{script} fails on {names[message.worker]}: {message.stderr}"], parting
            if message.exit_code is None:
                waiting[message.worker].append(OpExecution.from_json(message.content))
            while all(waiting):
                a, b = (records.popleft() for records in waiting)
                lines = parting.compare(a, b)
                if lines:
                    return lines, parting
                if parting.count % 50 == 0:
                    update(f"op {parting.count}: {a.op}")
    rest = next((i for i in range(2) if waiting[i]), None)
    if rest is not None:
        record = waiting[rest][0]
        problem = f"{labels[1 - rest]} ends after {count(parting.count, 'op')}; {labels[rest]} continues"
        return [f"{problem} with {record.what}", f"  {record.location}"], parting
    return [], parting
