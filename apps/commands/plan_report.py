"""The tables of `polyhal plan`: the best strategies, the breakdown of a step, memory, and the scaling curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.cli.display import memory, say, say_wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.forecast.curve import CurvePoint
    from polyhal.forecast.forecaster import Forecaster
    from polyhal.forecast.prediction import Prediction
    from polyhal.forecast.search import Found
    from polyhal.forecast.unequal import UnequalForecaster, UnequalPlan

_WIDTH = 40
"""Characters of a bar for 100 %."""


def show(
    console: Console, forecaster: Forecaster, found: Found, best: Prediction, points: Sequence[CurvePoint], top: int
) -> None:
    """Print all tables."""
    _head(console, forecaster, found.batch, str(found.cluster))
    _strategies(console, forecaster, found, top)
    _time(console, best)
    _memory(console, best, found.cluster.memory)
    if len(points) > 1:
        _curve(console, forecaster, points)


def _head(console: Console, forecaster: Forecaster, batch: int, devices: str) -> None:
    model, dtype = forecaster.recipe.name, forecaster.dtype.name
    say_wrapped(console, f"{model}, {forecaster.parameters / 1e6:.1f} million parameters, {dtype}")
    say_wrapped(console, f"{batch} samples of {_sample(forecaster)} in a step, on {devices}")
    console.print()


def show_unequal(console: Console, forecaster: UnequalForecaster, found: UnequalPlan) -> None:
    """Print the division of a batch among devices of several kinds."""
    first = forecaster.forecasters[0]
    _head(console, first, found.batch, " and ".join(f"{k.devices} {k.device}" for k in forecaster.kinds))
    rate = found.batch / found.seconds * first.recipe.units_per_sample
    rows = [("devices", "samples each", "step", "waiting", "memory")]
    for share in found.shares:
        p = share.prediction
        waiting = 1 - p.compute / found.seconds if p else 1.0
        rows.append(
            (
                str(share.cluster.devices),
                str(share.samples),
                milliseconds(p.seconds) if p else "",
                f"{100 * waiting:.1f} %",
                memory(round(p.memory.total)) if p else "",
            )
        )
    _aligned(console, rows, ["kind", *(share.cluster.device for share in found.shares)])
    console.print()
    say(
        console,
        f"A step: {milliseconds(found.seconds)}, {rate:,.0f} {first.recipe.unit}/s, shard={found.shard}",
        "bold",
    )
    if found.alone < math.inf:
        say(console, f"  {found.alone / found.seconds:.2f} times as fast as the fastest kind by itself")


def _sample(forecaster: Forecaster) -> str:
    recipe = forecaster.recipe
    return f"{recipe.units_per_sample} tokens" if recipe.unit == "tokens" else "an image"


def _strategies(console: Console, forecaster: Forecaster, found: Found, top: int) -> None:
    rows = [("step", f"{forecaster.recipe.unit}/s", "waiting", "memory", "of peak", "passes")]
    for p in found.fitting[:top]:
        share = forecaster.utilization(p)
        rows.append(
            (
                milliseconds(p.seconds),
                units(forecaster, p),
                f"{100 * p.communication_share:.1f} %",
                memory(round(p.memory.total)),
                "" if share is None else f"{100 * share:.1f} %",
                str(p.strategy.passes),
            )
        )
    names = ["strategy", *(str(p.strategy) for p in found.fitting[:top])]
    _aligned(console, rows, names)
    if len(found.fitting) > top:
        say(console, f"and {len(found.fitting) - top} slower ones")
    if found.too_large:
        least = found.too_large[0]
        size = memory(round(least.memory.total))
        say_wrapped(console, f"{len(found.too_large)} do not fit; the smallest is {least.strategy}, {size}")


def _aligned(console: Console, rows: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Print rows with columns of equal width, the first row as a head, and a name at the end of each."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    _named(
        console,
        [
            ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), name)
            for row, name in zip(rows, names, strict=True)
        ],
        head=True,
    )


def _named(console: Console, rows: Sequence[tuple[str, str]], *, head: bool = False) -> None:
    """Print rows, each followed by its name, which is on the next line if the terminal is too narrow."""
    narrow = console.is_terminal and max(len(cells) + 2 + len(name) for cells, name in rows) > console.width
    for n, (cells, name) in enumerate(rows):
        style = "bold" if head and not n else ""
        for line in (cells, f"    {name}") if narrow else (f"{cells}  {name}",):
            say(console, line, style)


def _time(console: Console, best: Prediction) -> None:
    parts = [
        ("computing", best.compute),
        ("waiting for sums within layers", best.tensor),
        ("waiting for gradients and parameters", best.data),
        ("waiting for other stages", best.bubble),
    ]
    console.print()
    say(console, f"A step of {best.strategy}: {milliseconds(best.seconds)}", "bold")
    for name, seconds in parts:
        if seconds > 1e-3 * best.seconds or name == "computing":
            say(console, f"  {milliseconds(seconds):>12}  {100 * seconds / best.seconds:5.1f} %  {name}")
    if best.hidden:
        say(console, f"  {milliseconds(best.hidden):>12}           communication overlapped with computing")


def _memory(console: Console, best: Prediction, limit: int) -> None:
    console.print()
    say(console, f"Memory of a device: {memory(round(best.memory.total))} of {memory(limit)}", "bold")
    for name, nbytes in best.memory._asdict().items():
        if nbytes > 1e-3 * best.memory.total:
            say(console, f"  {memory(round(nbytes)):>12}  {name}")


def _curve(console: Console, forecaster: Forecaster, points: Sequence[CurvePoint]) -> None:
    console.print()
    say(console, "Efficiency: throughput of a device, relative to the fewest devices", "bold")
    width = max(len(units(forecaster, p.prediction)) for p in points)
    longest = max(p.efficiency for p in points)
    rows = []
    for p in points:
        bar = "#" * round(_WIDTH * p.efficiency / max(1.0, longest))
        rate = f"{units(forecaster, p.prediction):>{width}} {forecaster.recipe.unit}/s"
        cells = f"  {p.devices:>5}  {bar:<{_WIDTH}} {100 * p.efficiency:5.1f} %  {rate}"
        rows.append((cells, str(p.prediction.strategy)))
    _named(console, rows)


def units(forecaster: Forecaster, p: Prediction) -> str:
    """Format tokens or images per second, with thousands separated."""
    return f"{p.samples_per_second * forecaster.recipe.units_per_sample:,.0f}"


def milliseconds(seconds: float) -> str:
    """Format a time in ms, or in s for at least 10 s."""
    return f"{seconds:.2f} s" if seconds >= 10 else f"{seconds * 1e3:.2f} ms"
