"""`polyhal doctor`: what is installed, what was found, what works, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.diagnostics.doctor import DeviceReport, Report


@reported
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List the backends for tests and teaching too.")] = False,
    test: Annotated[
        bool,
        typer.Option("--test/--no-test", help="Run a small computation on every device and compare it with NumPy."),
    ] = True,
) -> None:
    """Examine this installation: versions, plug-ins, drivers, devices, failures and their fixes, the default device.

    Exits with code 1 when no device can be used or a device computes wrongly.
    """
    from polyhal.hal.diagnostics.doctor import examine

    report = examine(tests=test, hidden=everything)
    if json:
        from polyhal.cli.output import print_json

        print_json(report.to_json())
    else:
        from rich.console import Console

        _print(report, Console(highlight=False))
    if not report.healthy:
        raise typer.Exit(1)


def _print(report: Report, console: Console) -> None:
    _section(console, "System", report.system.items())
    _section(
        console, "Packages", ((name, version or "not installed") for name, version in report.distributions.items())
    )
    _section(
        console,
        "Backend plug-ins",
        ((point, f"from {source}" if source else "") for point, source in report.entry_points),
    )
    files = [(f.path, f.library + (" (missing)" if f.exists is False else "")) for f in report.driver_files]
    _section(console, "OpenCL driver files", files or [("none", "")])
    console.print("\nDevices", style="bold")
    for device in report.devices:
        _device(console, device)
    environment = [
        *report.environment.items(),
        *((name, "is not a variable that Polyhal knows") for name in report.unknown_variables),
    ]
    _section(console, "Environment", environment or [("none set", "")])
    cache = report.cache
    state = f"{cache.files} files, {cache.nbytes / 2**20:.1f} MiB" + ("" if cache.writable else ", not writable")
    _section(console, "Cache", [(cache.path, state)])
    if report.problems:
        console.print("\nNot available", style="bold")
        for problem in report.problems:
            _problem(console, "  ", f"{problem.source}: {problem.reason}", problem.fix)
    console.print()
    if report.default:
        console.print(f"Default device: {report.default_reason}", style="bold green", markup=False)
    else:
        console.print(f"No default device: {report.default_reason}", style="bold red", markup=False)


def _section(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(f"\n{title}", style="bold")
    table = Table(box=None, show_header=False, pad_edge=True, padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    console.print(table)


def _problem(console: Console, margin: str, text: str, fix: str, style: str = "") -> None:
    """What is wrong, in one line however long, so that it can be copied and searched for; and the fix in another."""
    console.print(f"{margin}{text}", style=style, markup=False, soft_wrap=True)
    console.print(f"{margin}  fix: {fix}", style="yellow", markup=False, soft_wrap=True)


def _device(console: Console, device: DeviceReport) -> None:
    from polyhal.cli.commands.devices import dtypes, memory, speed

    info = device.info
    mark = "→" if device.default else " "
    kind = info["type"].replace("_", " ")
    console.print(
        f"{mark} {device.name}: {info['name']} ({kind}, {memory(info['memory'])}, {info['driver']})",
        markup=False,
        style="bold" if device.default else "",
    )
    if device.problem:
        _problem(console, "    ", f"cannot be opened: {device.problem}", device.fix, style="red")
        return
    features = ", ".join(f"{k} {v}" for k, v in device.capabilities["features"].items())
    console.print(f"    dtypes: {dtypes(device)}{'; ' + features if features else ''}", style="dim", markup=False)
    if device.speed is not None:
        problem = device.speed["problem"]
        found = f"could not be measured: {problem}," if problem else f"{speed(device)} NumPy, measured"
        text = f"    speed: {found} on {device.speed['date'][:10]}"
        console.print(text, style="dim", markup=False, soft_wrap=True)
    for line in device.quarantined:
        console.print(f"    {line}", style="yellow", markup=False, soft_wrap=True)
    for test in device.tests:
        if test.passed:
            timing = f"{test.seconds * 1e3:.2f} ms, first call {test.first_seconds * 1e3:.0f} ms"
            console.print(f"    {test.name}: ok ({timing}, error {test.error:.1e})", style="green", markup=False)
        else:
            text = f"    {test.name}: FAILED: {test.problem} (error {test.error:.1e})"
            console.print(text, style="red", markup=False, soft_wrap=True)
