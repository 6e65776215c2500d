"""`polyhal prebuild`: compile kernels ahead of time, in several processes at once."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, count, plain_table, print_json, say, status_line
from polyhal.cli.reporting import fail, reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.cli.workers.pool import Message
    from polyhal.hal.device import Device

_BUILD_TIMEOUT = 300.0
"""Seconds without a finished program after which the driver is considered hung."""
_MAX_PROCESSES = 16
_WORKER_ENVIRONMENT = {"POLYHAL_FALLBACK": "allow", "POLYHAL_STRICT": "0", "POLYHAL_BUILDS_ONLY": "1"}
"""Settings of workers: an op that runs on the host or does not build must not stop the build of other kernels."""


@reported
def prebuild(
    device: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names,
            help="The device, as named by [bold]polyhal devices[/]. Default: the default device.",
        ),
    ] = None,
    workloads: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="NAMES",
            help="Any of basics, mlp, cnn, gpt, captured, amp, and used: the kernels of earlier programs.",
        ),
    ] = "basics,mlp,cnn,gpt,used",
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at once. Default: one per core.")] = None,
    json: Json = False,
) -> None:
    """Fill the cache of compiled kernels so that programs start at once.

    Useful after installing Polyhal, after updating a driver, and in container images.
    """
    from rich.console import Console

    from polyhal.cli.workers.build_workloads import chosen
    from polyhal.hal.core.kernels.prebuild import library
    from polyhal.hal.device import Device

    try:
        names = chosen(workloads)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None
    target = Device(device)
    library(target)  # raises for a backend without kernel files
    console = Console(highlight=False, stderr=json)
    say(console, f"building for {target.name}: {target.info.name}, {target.info.driver}")
    begin = time.perf_counter()
    tally = _build(console, target, names, jobs or min(os.cpu_count() or 1, _MAX_PROCESSES))
    if json:
        print_json("prebuild", {"device": target.name, "seconds": time.perf_counter() - begin, **tally.to_json()})
    if tally.problems:
        raise typer.Exit(1)


@dataclass(slots=True)
class _BuildTally:
    """Messages of all workers so far."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Build times of compiled programs, by kernel file."""
    cached: int = 0
    warnings: dict[str, None] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    """Problems without duplicates: all workers run the same workloads."""

    @property
    def built(self) -> int:
        return sum(map(len, self.seconds.values()))

    def to_json(self) -> dict[str, Any]:
        """Return plain data: build times in seconds by kernel file."""
        return {
            "built": self.built,
            "cached": self.cached,
            "kernels": self.seconds,
            "warnings": list(self.warnings),
            "problems": list(self.problems),
        }

    def add(self, message: Message) -> None:
        """Count one message of a worker."""
        content = message.content
        if message.exit_code:
            if not self.problems:
                stderr = message.stderr or "no output"
                self.problems.setdefault(f"a process exited with code {message.exit_code}: {stderr}")
        elif "problem" in content:
            self.problems.setdefault(f"{content['workload']}: {content['problem']}")
        elif "warning" in content:
            self.warnings.setdefault(content["warning"])
        elif content.get("compiled"):
            self.seconds[content["kernel"]].append(content["seconds"])
        elif "kernel" in content:
            self.cached += 1


def _build(console: Console, device: Device, workloads: list[str], jobs: int) -> _BuildTally:
    """Build with progress, then print a summary. Returns the counts, and the problems if not everything was built."""
    from polyhal.cli.workers.pool import WorkerPool

    begin, tally = time.perf_counter(), _BuildTally()
    with tempfile.TemporaryDirectory(prefix="polyhal-claims-") as folder, status_line(console, "starting") as update:
        arguments = [[device.name, folder, *workloads]] * jobs
        try:
            with WorkerPool("polyhal.cli.workers.build", arguments, _WORKER_ENVIRONMENT) as pool:
                for message in pool.messages(_BUILD_TIMEOUT):
                    tally.add(message)
                    if tally.built:
                        update(f"{tally.built} programs built, last {list(tally.seconds)[-1]}")
        except TimeoutError as error:
            tally.problems.setdefault(f"building hangs: {error}")
    for warning in tally.warnings:
        say(console, f"warning: {warning}", "yellow")
    for problem in tally.problems:
        fail(problem)
    _print_summary(console, tally, time.perf_counter() - begin, jobs)
    return tally


def _print_summary(console: Console, tally: _BuildTally, seconds: float, jobs: int) -> None:
    if tally.built:
        table = plain_table("kernel file", "programs", "seconds", "longest", right=("programs", "seconds", "longest"))
        for kernel, times in sorted(tally.seconds.items(), key=lambda item: -sum(item[1])):
            table.add_row(kernel, str(len(times)), f"{sum(times):.1f}", f"{max(times):.2f}")
        console.print(table)
    cached = f"; {tally.cached} were in the cache" if tally.cached else ""
    built, processes = count(tally.built, "program"), count(jobs, "process", "processes")
    console.print(f"{built} built in {seconds:.1f} s by {processes}{cached}")
