"""`polyhal devices`: every device of every backend, and the default device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.display import Json, memory, plain_table, print_json, say_wrapped
from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from rich.table import Table

    from polyhal.hal.system.diagnostics.doctor import DeviceReport

_LISTED_GAPS = 4
"""Maximum number of missing dtypes for which a device is shown as "all but ..."; otherwise its dtypes are listed."""


@reported
def devices(
    json: Json = False,
    everything: Annotated[bool, typer.Option("--all", help="Include the backends for tests and teaching.")] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Measure the speed of every device again.")] = False,
    cards: Annotated[bool, typer.Option("--cards", help="List the cards that can be described or simulated.")] = False,
) -> None:
    """List every device of every backend. An arrow marks the default device; a line below states the reason.

    The column `vs NumPy` is the speed in a small training benchmark, relative to NumPy. A device is measured once, when
    it competes with others to be the default. The result is kept until a driver or a version changes.
    """
    from polyhal.hal.system.diagnostics.doctor import examine

    if cards:
        _list_cards(json)
        return
    if measure:
        from polyhal.hal.system.discovery.registry import registry

        skipped = registry().refresh_benchmarks()
        if skipped:
            typer.echo(f"not measured: {skipped}", err=True)
    report = examine(tests=False, hidden=everything)
    if json:
        print_json("devices", {"devices": [_as_json(d) for d in report.devices]})
        return
    from rich.console import Console

    console = Console()
    console.print(_table(report.devices))
    say_wrapped(console, f"{'Default' if report.default else 'No default'} device: {report.default_reason}", "")
    if report.next_step:
        say_wrapped(console, f"Next step, for a faster device: {report.next_step}", "")
    for problem in report.problems:
        say_wrapped(console, f"{problem.source}: {problem.reason}; {problem.fix}", "dim")


def _list_cards(json: bool) -> None:
    """Print the catalogue of cards."""
    from rich.console import Console

    from polyhal.hal.core.hardware import catalogue

    found = [catalogue.find(name) for name in catalogue.names()]
    if json:
        facts = ("name", "title", "vendor", "type", "family", "aliases", "apis", "is_simulated")
        print_json("devices", {"cards": [{fact: getattr(card, fact) for fact in facts} for card in found]})
        return
    table = plain_table("card", "title", "type", "vendor", "described through", "simulated", "aliases")
    for card in found:
        kind, simulated = card.type.replace("_", " "), "yes" if card.is_simulated else ""
        apis, aliases = ", ".join(card.apis), ", ".join(card.aliases)
        table.add_row(card.name, card.title, kind, card.vendor, apis, simulated, aliases)
    Console().print(table)


def speed(device: DeviceReport) -> str:
    """Return the measured speed relative to NumPy, as in "2.0x"; "failed" or "" if there is none."""
    if device.speed is None:
        return ""
    return "failed" if device.speed["problem"] else f"{device.speed['ratio']:.1f}x"


def dtype_summary(device: DeviceReport) -> str:
    """Return the dtypes in which a device computes, as in "all but float64"."""
    from polyhal.hal import dtypes

    supported = set(device.capabilities["compute"])
    missing = [d.name for d in dtypes.ALL if d.name not in supported]
    if not missing:
        return "all"
    return f"all but {', '.join(missing)}" if len(missing) <= _LISTED_GAPS else ", ".join(sorted(supported))


def _as_json(device: DeviceReport) -> dict[str, object]:
    return {
        **device.info,
        "device": device.name,
        "default": device.default,
        "speed": device.speed,
        "capabilities": device.capabilities,
        "problem": device.problem,
    }


def _table(devices: tuple[DeviceReport, ...]) -> Table:
    from rich.text import Text

    titles = ["", "device", "name", "kind", "memory", "vs NumPy", "driver", "dtypes"]
    if any(d.problem for d in devices):
        titles.append("problem")
    out = plain_table(*titles, right=("memory", "vs NumPy"))
    for d in devices:
        kind = d.info["type"].replace("_", " ")
        cells = (
            "→" if d.default else "",
            d.name,
            d.info["name"],
            kind,
            memory(d.info["memory"]),
            speed(d),
            d.info["driver"],
            "" if d.problem else dtype_summary(d),
            d.problem,
        )
        out.add_row(*(Text(c) for c in cells[: len(titles)]), style="bold" if d.default else "red" if d.problem else "")
    return out
