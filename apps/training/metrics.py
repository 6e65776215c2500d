"""The metrics of a run over time: one JSON object per line, and a plot of the losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyhal.hal.errors import CorruptFileError, message
from polyhal.utils.files import parse_json, replacing
from polyhal.utils.metrics import JsonLines, json_line


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """Metrics at one step. Losses are in nats per token.

    `loss` is the mean since the previous row, `val_loss` is None between evaluations.
    """

    step: int
    epoch: float
    loss: float
    val_loss: float | None
    lr: float
    tokens_per_s: float

    @property
    def values(self) -> dict[str, float | None]:
        """The metrics by name, without the step."""
        values = asdict(self)
        del values["step"]
        return values


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class Metrics(JsonLines):
    """A file of rows; resuming from an earlier step truncates it."""

    def rows(self) -> list[MetricsRow]:
        """Read all rows, ignoring an incomplete last line. Raises CorruptFileError."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        return [self._row(number, line) for number, line in enumerate(lines[:-1], 1)]

    def cut(self, step: int) -> None:
        """Remove the rows after `step`, atomically."""
        rows = [r for r in self.rows() if r.step <= step]
        with replacing(self.path) as file:
            file.write("".join(json_line(asdict(r)) for r in rows).encode())

    def _row(self, number: int, line: str) -> MetricsRow:
        try:
            values: dict[str, Any] = parse_json(line, self.path)
            values |= {name: float(value) for name, value in values.items() if value in _NOT_FINITE}
            row = MetricsRow(**values)
            numbers = [v for v in asdict(row).values() if v is not None]
            if type(row.step) is not int or not all(type(v) in (int, float) for v in numbers):
                raise ValueError(f"{row} is not a row of numbers")
            return row
        except (AttributeError, CorruptFileError, TypeError, ValueError) as error:
            raise CorruptFileError(
                message(None, f"line {number} of {self.path} is damaged: {error}", fix="repair or remove the file")
            ) from error


def draw_losses(rows: Sequence[MetricsRow], path: Path, title: str) -> None:
    """Plot training and validation loss over the steps as PNG. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([r.step for r in rows], [r.loss for r in rows], label="training", color="tab:blue", linewidth=1)
    measured = [(r.step, r.val_loss) for r in rows if r.val_loss is not None]
    if measured:
        axes.plot(*zip(*measured, strict=True), label="validation", color="tab:orange", marker="o", markersize=3)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    with replacing(path) as file:
        figure.savefig(file, format="png")
