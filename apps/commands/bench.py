"""The measurements and tables of `polyhal bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from polyhal.cli.display import plain_table, print_json, say_wrapped, status_line

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.reports.comparison import BenchedDevice, DeviceComparison
    from polyhal.reports.machine_report import SpeedFigure

_SHORT_TITLE = 34
"""Maximum characters of a device's name in the table of shared results."""


def measure(device: str | None, seconds: float, json: bool) -> None:
    """Measure a device, and print the comparison. Exits with code 1 if the device ran nothing."""
    from rich.console import Console

    from polyhal import Device
    from polyhal.reports.comparison import compare

    name = Device(device).name
    with status_line(Console(highlight=False, stderr=True), name) as progress:
        found = compare(name, seconds, progress)
    if json:
        print_json("bench", found.to_json())
    else:
        _show(Console(highlight=False), found)
    if not found.device.speeds:
        raise typer.Exit(1)


def _show(console: Console, found: DeviceComparison) -> None:
    say_wrapped(console, answer(found), "bold")
    if found.flops and found.bandwidth:
        rates = f"{found.flops / 1e9:,.4g} GFLOP/s and {found.bandwidth / 1e9:,.4g} GB/s"
        say_wrapped(console, f"Measured rates of matrix products and memory in float32: {rates}.")
    console.print()
    _workloads(console, found)
    for one in (found.device, *found.peers):
        problems = {f.problem for f in one.figures if f.problem} | ({one.problem} - {""})
        for problem in sorted(problems):
            missing = ", ".join(f"{f.what} in {f.dtype}" for f in one.figures if f.problem == problem)
            say_wrapped(console, f"{one.name}{': ' * bool(missing)}{missing}: {problem}", "dim")
    console.print()
    _shared(console, found)


def answer(found: DeviceComparison) -> str:
    """Return the result in one sentence."""
    from polyhal.reports.comparison import mean_ratio

    device = found.device
    if not device.speeds:
        return f"{device.name} ran no workload: {device.problem or device.figures[0].problem}"
    means = [(peer.name, mean_ratio(device, peer)) for peer in found.peers]
    parts = [f"{_factor(mean)} times as fast as {name}" for name, mean in means if mean is not None]
    title = f"{device.name} ({device.title}, {device.driver})"
    if not parts:
        return f"{title} ran {len(device.speeds)} workloads; neither NumPy nor PyTorch ran them."
    return f"{title} is {' and '.join(parts)}, by geometric means of up to {len(device.speeds)} workloads."


def _workloads(console: Console, found: DeviceComparison) -> None:
    from polyhal.reports.comparison import ratio

    numeric = ["speed", "roofline", *(f"vs {_brand(peer)}" for peer in found.peers)]
    table = plain_table("workload", *numeric, right=numeric)
    for key, figure in found.device.speeds.items():
        share = found.share(figure)
        ratios = [ratio(figure, peer.speeds.get(key)) for peer in found.peers]
        cells = [f"{_speed(figure)} {figure.unit}", "" if share is None else f"{100 * share:.0f} %"]
        table.add_row(
            f"{figure.what}, {figure.dtype}", *cells, *("" if r is None else f"{_factor(r)}x" for r in ratios)
        )
    console.print(table)


def _shared(console: Console, found: DeviceComparison) -> None:
    """Print the results of other machines, the fastest first, with this device among them."""
    from polyhal.reports.comparison import mean_ratio

    say_wrapped(console, "Results of other machines (polyhal doctor --report), relative to this device:", "bold")
    numeric = ["memory GB/s", "product GFLOP/s", "speed"]
    table = plain_table("device", "through", *numeric, right=numeric)
    rows = [(1.0, found.device)]
    for other in found.shared:
        mean = mean_ratio(found.device, other)
        if mean:
            rows.append((1 / mean, other))
    for speed, one in sorted(rows, key=lambda row: -row[0]):
        mine = one is found.device
        cells = [_speed(f) if (f := one.speeds.get((what, "float32"))) else "" for what in ("memory", "product")]
        title = one.title if len(one.title) <= _SHORT_TITLE else one.title[: _SHORT_TITLE - 1] + "…"
        through = one.name.partition(":")[0] if one.driver else _brand(one)
        table.add_row(title, through, *cells, f"{_factor(speed)}x", style="bold" if mine else "")
    console.print(table)


def _brand(one: BenchedDevice) -> str:
    """Return the name without its version."""
    return one.name.partition(" ")[0]


def _speed(figure: SpeedFigure) -> str:
    return f"{figure.value:,.0f}" if figure.value >= 1000 else f"{figure.value:.4g}"


def _factor(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.1f}"
