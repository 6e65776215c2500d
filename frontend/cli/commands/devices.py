"""`polyhal devices`: every device of every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from rich.table import Table

    from polyhal.hal.diagnostics.doctor import DeviceReport


@reported
def devices(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List the backends for tests and teaching too.")] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Measure the speed of every device again.")] = False,
) -> None:
    """List every device of every backend; the default one is marked with an arrow.

    The column `vs NumPy` compares the speed at a miniature of training. Devices are measured when they compete for being
    the default, once: the figures are remembered until a driver or a version changes.
    """
    from polyhal.hal.diagnostics.doctor import examine

    if measure:
        from polyhal.hal.discovery.registry import registry

        refusal = registry().measure()
        if refusal:
            typer.echo(f"not measured: {refusal}", err=True)
    report = examine(tests=False, hidden=everything)
    if json:
        from polyhal.cli.output import print_json

        print_json(
            [
                {
                    **d.info,
                    "device": d.name,
                    "default": d.default,
                    "speed": d.speed,
                    "capabilities": d.capabilities,
                    "problem": d.problem,
                }
                for d in report.devices
            ]
        )
        return
    from rich.console import Console

    console = Console()
    console.print(table(report.devices))
    if not report.default:
        console.print(f"No default device: {report.default_reason}", markup=False)
    for problem in report.problems:
        console.print(f"{problem.source}: {problem.reason}; {problem.fix}", style="dim", markup=False, soft_wrap=True)


def table(found: tuple[DeviceReport, ...]) -> Table:
    """The devices as a table."""
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    out.add_column("")
    for title in ("device", "name", "kind"):
        out.add_column(title, overflow="fold")
    out.add_column("memory", justify="right", no_wrap=True)
    out.add_column("vs NumPy", justify="right", no_wrap=True)
    for title in ("driver", "dtypes"):
        out.add_column(title, overflow="fold")
    for d in found:
        from rich.text import Text

        cells: list[Any] = [
            "→" if d.default else "",
            d.name,
            d.info["name"],
            d.info["type"].replace("_", " "),
            memory(d.info["memory"]),
            speed(d),
        ]
        cells += [d.info["driver"], d.problem or dtypes(d)]
        out.add_row(*(Text(c) for c in cells), style="bold" if d.default else "red" if d.problem else "")
    return out


def memory(nbytes: int) -> str:
    """A number of bytes for people."""
    if not nbytes:
        return "unknown"
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"


def speed(device: DeviceReport) -> str:
    """How fast a device was found to be, in short."""
    if device.speed is None:
        return ""
    return "failed" if device.speed["problem"] else f"{device.speed['ratio']:.1f}x"


def dtypes(device: DeviceReport) -> str:
    """The element types that a device computes with, in short."""
    from polyhal.hal import dtypes as known

    have = set(device.capabilities["compute"])
    missing = [d.name for d in known.ALL if d.name not in have]
    return "all" if not missing else f"all but {', '.join(missing)}" if len(missing) <= 4 else ", ".join(sorted(have))
