"""`polyhal doctor --report`: its progress, and a summary of the file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from polyhal.cli.display import say, status_line
from polyhal.cli.reporting import INTERRUPTED, fail
from polyhal.cli.stop_request import StopRequest


def write_report(file: Path, seconds: float) -> None:
    """Examine all devices, write the report after each of them, and print a summary.

    Ctrl-C and SIGTERM end it early, with code 130. Exits with code 1 if there is no device.
    """
    if file.is_dir():
        raise typer.BadParameter(f"{file} is a folder; expected the name of a file")
    from rich.console import Console

    from polyhal.reports import machine_report
    from polyhal.reports.collect import collect, summary

    console = Console(highlight=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=file.parent).close()  # fails before the work if the folder is not writable
    say(console, f"checking and measuring every device, for at most {_time(seconds)}; Ctrl-C writes the results so far")
    with status_line(console, "devices") as progress, StopRequest() as stop:
        for report in collect(seconds, progress, stop):
            machine_report.write(report, file)
    for line in summary(report):
        say(console, f"  {line}")
    for problem in report.problems:
        say(console, f"  missing: {problem}", "yellow")
    say(console, f"written: {file}", "bold")
    say(
        console,
        "It contains versions, the system and the CPU model, and for each device its properties, the checks that it "
        "passed and failed, and its speed. It contains no names of users or hosts, no paths, no serial numbers, UUIDs or PCI "
        "addresses; it is text that you can read.",
    )
    if stop():
        fail(f"{stop.requested} ended the report early; run the command again for a complete one")
        raise typer.Exit(INTERRUPTED)
    say(console, "To send it, open an issue in the project's issue tracker and attach the file.")
    if not report.devices:
        raise typer.Exit(1)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.3g} minutes" if seconds >= 120 else f"{seconds:g} seconds"
