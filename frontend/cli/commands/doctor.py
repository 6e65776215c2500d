"""`polyhal doctor`: versions, devices and failures of the installation, with fixes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.applications import extension
from polyhal.cli.display import Json, count, memory, print_json, say_wrapped
from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.system.diagnostics.doctor import DeviceReport, Report

_REPORT_FILE = "polyhal-report.json"
_LIBRARIES = "install the missing library, or reinstall the driver with its dependencies"


@reported
def doctor(
    json: Json = False,
    everything: Annotated[bool, typer.Option("--all", help="Include the backends for tests and teaching.")] = False,
    test: Annotated[
        bool,
        typer.Option("--test/--no-test", help="Run a small computation on every device and compare it with NumPy."),
    ] = True,
    report: Annotated[
        bool,
        typer.Option("--report", help="Check and benchmark every device, and write a file to send to the project."),
    ] = False,
    file: Annotated[
        Path | None, typer.Argument(help=f"Output file of [bold]--report[/]. Default: {_REPORT_FILE}.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=10, help="With --report: greatest time for all checks and benchmarks.")
    ] = 240,
) -> None:
    """Examine this installation: versions, plug-ins, drivers, devices, failures and their fixes, the default device.

    Exits with code 1 if no device can be used or a device computes wrong results; with --report, if there is no device.
    """
    if report:
        if json:
            raise typer.BadParameter("--report writes JSON to a file; expected it without --json")
        extension("doctor.report")(file or Path(_REPORT_FILE), seconds)
        return
    if file is not None:
        raise typer.BadParameter(f"unexpected file {file}; expected --report before the file")
    from polyhal.hal.core.plugins.trial_cache import forget_failures
    from polyhal.hal.system.diagnostics.doctor import examine

    forget_failures()  # drivers may have been repaired without a change of the package
    found = examine(tests=test, hidden=everything)
    if json:
        print_json("doctor", found.to_json())
    else:
        from rich.console import Console

        _print(found, Console(highlight=False))
    if not found.healthy:
        raise typer.Exit(1)


def _print(report: Report, console: Console) -> None:
    answer(console, report)
    _section(console, "System", report.system.items())
    packages = ((name, version or "not installed") for name, version in report.distributions.items())
    _section(console, "Packages", packages)
    plugins = ((point, f"from {source}" if source else "") for point, source in report.entry_points)
    _section(console, "Plug-ins", plugins)
    if report.ops:
        _section(console, "Ops of installed packages", report.ops.items())
    console.print("\nOpenCL driver files", style="bold")
    for file in report.driver_files:
        say_wrapped(console, f"  {file.path}: {file.library}" + (" (missing)" if file.exists is False else ""))
        if file.problem:
            _problem(console, "    ", f"cannot be loaded: {file.problem}", _LIBRARIES, style="red")
    if not report.driver_files:
        say_wrapped(console, "  none")
    console.print("\nDevices", style="bold")
    for device in report.devices:
        _device(console, device)
    if report.left_out:
        say_wrapped(console, f"  {report.left_out}", "dim")
    variables = [*report.environment.items(), *((n, "is not a Polyhal variable") for n in report.unknown_variables)]
    _section(console, "Environment", variables or [("none set", "")])
    cache = report.cache
    state = f"{cache.files} files, {cache.nbytes / 2**20:.1f} MiB" + ("" if cache.writable else ", not writable")
    _section(console, "Cache", [(cache.path, state)])
    if report.problems:
        console.print("\nNot available", style="bold")
        for problem in report.problems:
            _problem(console, "  ", f"{problem.source}: {problem.reason}", problem.fix)
    if report.pages:
        console.print("\nSee also", style="bold")
        for text, page in report.pages:
            say_wrapped(console, f"  {text}: {page}")


def answer(console: Console, report: Report) -> None:
    """Print the device that will be used, and each failure with its remedy; the rest of the report has the details."""
    if report.default:
        say_wrapped(console, f"Polyhal will use {report.default_reason}", "bold green")
    else:
        say_wrapped(console, f"Polyhal can use no device: {report.default_reason}", "bold red")
    for device in report.devices:
        if device.problem:
            say_wrapped(console, f"{device.name} cannot be opened: {device.fix}", "bold red")
        wrong = [test.name for test in device.tests if not test.passed]
        if wrong:
            remedy = f"update its driver, or run polyhal verify {device.name} to stop using its wrong kernels"
            say_wrapped(console, f"{device.name} computes wrong results ({', '.join(wrong)}): {remedy}", "bold red")
    if report.next_step:
        say_wrapped(console, f"Next step, for a faster device: {report.next_step}", "bold")
    if report.problems:
        noun = count(len(report.problems), "thing")
        say_wrapped(console, f"{noun} not available, at the end of this report with their fixes", "yellow")


def _section(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    from rich.text import Text

    from polyhal.cli.fitted_table import FittedTable

    console.print(f"\n{title}", style="bold")
    table = FittedTable(box=None, show_header=False, pad_edge=True, padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    console.print(table)


def _problem(console: Console, margin: str, text: str, fix: str, style: str = "") -> None:
    """Print a problem and its fix, each on one line if the output is not a terminal."""
    say_wrapped(console, f"{margin}{text}", style)
    say_wrapped(console, f"{margin}  fix: {fix}", "yellow")


def _device(console: Console, device: DeviceReport) -> None:
    from polyhal.cli.commands.devices import dtype_summary, speed

    info = device.info
    mark = "→" if device.default else " "
    kind = info["type"].replace("_", " ")
    title = f"{mark} {device.name}: {info['name']} ({kind}, {memory(info['memory'])}, {info['driver']})"
    say_wrapped(console, title, "bold" if device.default else "")
    if device.problem:
        _problem(console, "    ", f"cannot be opened: {device.problem}", device.fix, style="red")
        return
    features = ", ".join(f"{k} {v}" for k, v in device.capabilities["features"].items())
    say_wrapped(console, f"    dtypes: {dtype_summary(device)}", "dim")
    if features:
        say_wrapped(console, f"    features: {features}", "dim")
    if device.speed is not None:
        problem = device.speed["problem"]
        result = f"could not be measured: {problem}," if problem else f"{speed(device)} NumPy, measured"
        say_wrapped(console, f"    speed: {result} on {device.speed['date'][:10]}", "dim")
    for name, reason in device.capabilities["quirks"].items():
        say_wrapped(console, f"    workaround {name}: {reason}", "dim")
    for line in device.units:
        say_wrapped(console, f"    matrix unit {line}", "dim")
    for line in device.quarantined:
        say_wrapped(console, f"    {line}", "yellow")
    for test in device.tests:
        if test.passed:
            timing = f"{test.seconds * 1e3:.2f} ms, first call {test.first_seconds * 1e3:.0f} ms"
            console.print(f"    {test.name}: ok ({timing}, error {test.error:.1e})", style="green", markup=False)
        else:
            say_wrapped(console, f"    {test.name}: FAILED: {test.problem} (error {test.error:.1e})", "red")
