"""Training curves in notebooks, terminals and files."""

from __future__ import annotations

import math
import os
from html import escape
from itertools import pairwise
from pathlib import Path

from polyhal.hal.errors import MissingPackageError, message
from polyhal.utils.files import replacing
from polyhal.utils.metrics import ClosingSink, Values

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT = 480, 160
"""Size of a plot in a page, in pixels."""
_COLUMNS = 48
"""Characters of a curve as text."""


class Curves(ClosingSink):
    """Keeps metrics and shows them: an SVG image per metric in notebooks, a line of block characters as text.

    >>> curves = Curves()
    >>> for step in range(4):
    ...     curves.log(step, {"loss": 4.0 - step})
    >>> print(curves)
    loss  ▇▅▃▁  4 → 1, least 1 at step 3
    """

    def __init__(self) -> None:
        self.points: dict[str, list[tuple[int, float]]] = {}
        """Steps and values of each metric. Missing and infinite values are left out."""

    def log(self, step: int, values: Values) -> None:
        for name, value in values.items():
            if value is not None and math.isfinite(value):
                self.points.setdefault(name, []).append((step, float(value)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw all metrics to a picture, by the suffix as PNG, SVG or PDF. Raises MissingPackageError without matplotlib."""
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            fix = 'run pip install "polyhal[plot]"'
            raise MissingPackageError(message(None, "pictures of curves need matplotlib", fix=fix)) from error
        target = Path(path)
        figure = Figure(figsize=(8, 2.5 * max(len(self.points), 1)), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        for row, (name, points) in enumerate(self.points.items(), 1):
            axes = figure.add_subplot(len(self.points), 1, row)
            axes.plot(*zip(*points, strict=True), linewidth=1)
            axes.set_ylabel(name)
            axes.grid(alpha=0.3)
        with replacing(target) as file:
            figure.savefig(file, format=target.suffix.removeprefix(".") or "png")

    def __str__(self) -> str:
        width = max(map(len, self.points), default=0)
        return "\n".join(f"{name:<{width}}  {_line(points)}" for name, points in self.points.items())

    def _repr_html_(self) -> str:
        return "".join(_svg(name, points) for name, points in self.points.items())


def _thinned(points: list[tuple[int, float]], most: int) -> list[float]:
    """Return at most so many values: means of equal intervals."""
    parts = min(len(points), most)
    edges = [round(k * len(points) / parts) for k in range(parts + 1)]
    groups = [points[a:b] for a, b in pairwise(edges)]
    return [sum(v for _, v in group) / len(group) for group in groups]


def _line(points: list[tuple[int, float]]) -> str:
    values = _thinned(points, _COLUMNS)
    low, high = min(values), max(values)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0
    blocks = "".join(_BLOCKS[int((v - low) * scale * 0.999)] for v in values)
    step, least = min(points, key=lambda point: point[1])
    return f"{blocks}  {points[0][1]:.4g} → {points[-1][1]:.4g}, least {least:.4g} at step {step}"


def _svg(name: str, points: list[tuple[int, float]]) -> str:
    """Return a curve with the first and last step, and the least and greatest value."""
    (first, _), (last, value) = points[0], points[-1]
    low, high = min(v for _, v in points), max(v for _, v in points)
    x = _WIDTH / max(last - first, 1)
    y = _HEIGHT / (high - low) if high > low else 0.0
    line = " ".join(f"{(s - first) * x:.1f},{_HEIGHT - (v - low) * y:.1f}" for s, v in points)
    box = f"-4 -4 {_WIDTH + 8} {_HEIGHT + 8}"
    return (
        f"<figure style='display:inline-block;margin:4px'><figcaption>{escape(name)}: {value:.4g} at step {last} "
        f"<small>({low:.4g} to {high:.4g}, from step {first})</small></figcaption>"
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' viewBox='{box}'>"
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='none' stroke='#ccc'/>"
        f"<polyline points='{line}' fill='none' stroke='#1f77b4' stroke-width='1.5'/></svg></figure>"
    )


__all__ = ["Curves"]
