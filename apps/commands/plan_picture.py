"""The plot of `polyhal plan`: throughput and efficiency over the number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyhal.forecast.curve import CurvePoint
    from polyhal.forecast.forecaster import Forecaster


def draw(forecaster: Forecaster, points: Sequence[CurvePoint], path: Path) -> None:
    """Write a PNG file. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, PercentFormatter

    recipe, cluster = forecaster.recipe, forecaster.cluster
    devices = [p.devices for p in points]
    rates = [p.prediction.samples_per_second * recipe.units_per_sample for p in points]
    figure = Figure(figsize=(9, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    ideal = [rates[0] / devices[0] * n for n in devices]
    left.plot(devices, ideal, color="gray", linestyle=":", label="linear")
    left.plot(devices, rates, color="tab:blue", marker="o", markersize=4, label="predicted")
    left.set_yscale("log")
    left.set_ylabel(f"{recipe.unit} per second")
    right.plot(devices, [p.efficiency for p in points], color="tab:blue", marker="o", markersize=4, label="efficiency")
    waiting = [p.prediction.communication_share for p in points]
    right.plot(
        devices, waiting, color="tab:orange", marker="s", markersize=4, label="fraction of the step spent waiting"
    )
    right.set_ylim(0, 1.1)
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axes in (left, right):
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        axes.set_xscale("log", base=2)
        axes.set_xticks(devices, labels=[str(n) for n in devices], fontsize=8)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("devices")
        axes.grid(alpha=0.3)
    figure.suptitle(f"{recipe.name} in {forecaster.dtype.name} on up to {cluster.devices} {cluster.device}")
    figure.savefig(path, format="png")
