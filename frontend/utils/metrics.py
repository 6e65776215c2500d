"""Metrics of a training run: one interface for all who receive them, and files of JSON lines and for TensorBoard.

`polyhal train`, `polyhal finetune` and a loop of your own call `log(step, values)` of each `MetricsSink`.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from polyhal.hal.errors import MissingPackageError, message

Values = Mapping[str, float | None]
"""Metrics by name; None for a metric that was not measured at this step."""


class MetricsSink(Protocol):
    """Receives the metrics of a run."""

    def log(self, step: int, values: Values) -> None:
        """Receive the metrics after a step."""

    def close(self) -> None:
        """Write out everything."""


class ClosingSink:
    """A sink that a `with` block closes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """No-op: every call of `log` writes its values."""


class JsonLines(ClosingSink):
    """Appends one JSON object per step to a file, and flushes it to the operating system. Raises OSError.

    A missing folder is made by the first row. Numbers that are not finite are the strings "NaN", "Infinity" and "-Infinity",
    which `float` reads: JSON has no such numbers.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def log(self, step: int, values: Values) -> None:
        line = json_line({"step": step, **values})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)


def json_line(values: Mapping[str, Any]) -> str:
    """Return a line of JSON; `JsonLines` describes numbers that are not finite. Tensors and NumPy's scalars are numbers."""
    return json.dumps({name: _json_value(value) for name, value in values.items()}, allow_nan=False) + "\n"


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, int | str):
        return value
    number = float(value)
    return number if math.isfinite(number) else json.dumps(number)


class TensorBoard(ClosingSink):
    """Writes a file of events to a folder, which the program `tensorboard --logdir FOLDER` shows.

    The package `tensorboard` writes the file: `pip install "polyhal[tensorboard]"`. Raises MissingPackageError without it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            problem = "events for TensorBoard need the package tensorboard, which is not installed"
            fix = 'run pip install "polyhal[tensorboard]", or write JSON lines'
            raise MissingPackageError(message(None, problem, fix=fix)) from error
        self._event: Any = Event
        self._summary: Any = Summary
        self._writer: Any = EventFileWriter(os.fspath(folder))

    def log(self, step: int, values: Values) -> None:
        known = [self._summary.Value(tag=name, simple_value=v) for name, v in values.items() if v is not None]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=known)))

    def close(self) -> None:
        self._writer.close()


__all__ = ["ClosingSink", "JsonLines", "MetricsSink", "TensorBoard", "json_line"]
