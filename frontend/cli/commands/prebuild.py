"""`polyhal prebuild`: build the kernels that programs will use, before they do, in several processes at once."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.reporting import fail, reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.cli.workers.pool import Message
    from polyhal.hal.device import Device

_SILENCE = 300.0
"""Seconds without a finished program after which a driver must hang."""
_MOST_PROCESSES = 16
_POLICIES = {"POLYHAL_FALLBACK": "allow", "POLYHAL_STRICT": "0", "POLYHAL_BUILDS_ONLY": "1"}
"""What runs on the host or does not build is no reason to leave the rest unbuilt."""


@reported
def prebuild(
    device: Annotated[
        str | None, typer.Option(help="The device, as [bold]polyhal devices[/] names it; the default if not given.")
    ] = None,
    workloads: Annotated[
        str,
        typer.Option(
            "--for", metavar="NAMES", help="What for, of basics, mlp, cnn, gpt and used: what was built here before."
        ),
    ] = "basics,mlp,cnn,gpt,used",
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at once; one per core if not given.")] = None,
) -> None:
    """Fill the cache of compiled kernels, so that programs start at once.

    Worth it after installing Polyhal or updating a driver, and in images of containers.
    """
    from rich.console import Console

    from polyhal.cli.workers.build_workloads import WORKLOADS
    from polyhal.hal.device import Device
    from polyhal.hal.kernels.prebuild import library

    wanted = [name.strip() for name in workloads.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in WORKLOADS]
    if unknown or not wanted:
        what = f"there is no {', '.join(map(repr, unknown))}" if unknown else "nothing is asked for"
        raise typer.BadParameter(f"{what}; expected some of {', '.join(WORKLOADS)}", param_hint="--for")
    target = Device(device)
    library(target)
    console = Console(highlight=False)
    console.print(f"building for {target.name}: {target.info.name}, {target.info.driver}", markup=False, soft_wrap=True)
    if not _run(console, target, wanted, jobs or _processes()):
        raise typer.Exit(1)


def _processes() -> int:
    return min(os.cpu_count() or 1, _MOST_PROCESSES)


@dataclass(slots=True)
class _Tally:
    """What the processes have done so far."""

    totals: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of each program that was compiled, by kernel file."""
    cached: int = 0
    warnings: dict[str, None] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    """Each once: all processes run the same work."""

    @property
    def built(self) -> int:
        return sum(map(len, self.totals.values()))

    def take(self, message: Message) -> None:
        """Note what a process says."""
        content = message.content
        if message.code:
            if not self.problems:
                said = message.said or "it said nothing"
                self.problems.setdefault(f"a process ended with code {message.code}: {said}")
        elif "problem" in content:
            self.problems.setdefault(f"{content['workload']}: {content['problem']}")
        elif "warning" in content:
            self.warnings.setdefault(content["warning"])
        elif content.get("compiled"):
            self.totals[content["kernel"]].append(content["seconds"])
        elif "kernel" in content:
            self.cached += 1


def _run(console: Console, device: Device, workloads: list[str], jobs: int) -> bool:
    """Build, showing what; then say how much. Returns whether all went well."""
    from polyhal.cli.workers.pool import Workers

    begun, tally = time.perf_counter(), _Tally()
    status = console.status("starting") if console.is_terminal else None
    if status:
        status.start()
    with tempfile.TemporaryDirectory(prefix="polyhal-claims-") as folder:
        arguments = [[device.name, folder, *workloads]] * jobs
        try:
            with Workers("polyhal.cli.workers.build", arguments, _POLICIES) as workers:
                for message in workers.messages(_SILENCE):
                    tally.take(message)
                    if status and tally.built:
                        status.update(f"{tally.built} programs built, last {list(tally.totals)[-1]}")
        except TimeoutError as error:
            tally.problems.setdefault(f"building hangs: {error}")
        finally:
            if status:
                status.stop()
    for warning in tally.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)
    for problem in tally.problems:
        fail(problem)
    _summarize(console, tally, time.perf_counter() - begun, jobs)
    return not tally.problems


def _summarize(console: Console, tally: _Tally, seconds: float, jobs: int) -> None:
    from rich.table import Table

    if tally.built:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("kernel file")
        for title in ("programs", "seconds", "longest"):
            table.add_column(title, justify="right")
        for kernel, taken in sorted(tally.totals.items(), key=lambda item: -sum(item[1])):
            table.add_row(kernel, str(len(taken)), f"{sum(taken):.1f}", f"{max(taken):.2f}")
        console.print(table)
    processes = "1 process" if jobs == 1 else f"{jobs} processes"
    ready = f", {tally.cached} were there already" if tally.cached else ""
    console.print(f"{tally.built} programs built in {seconds:.1f} s by {processes}{ready}")
