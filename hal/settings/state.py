"""Settings of the process that decide how ops are lowered. They are part of the key of every plan: they may change any time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Precision = Literal["highest", "high", "medium"]
IndexChecks = Literal["cpu", "all", "none"]
"""Which devices look for indices out of range before eager calls."""


class Settings:
    """What is in force. Set by the functions of `hal.precision` and `hal.determinism`, which say what the values mean."""

    __slots__ = ("_deterministic", "_index_checks", "_precision", "key")

    def __init__(self) -> None:
        self._precision: Precision = "highest"
        self._deterministic = False
        self._index_checks: IndexChecks = "cpu"
        self._changed()

    def _changed(self) -> None:
        self.key = (self._precision, self._deterministic, self._index_checks)
        """All values, for the hot path."""

    @property
    def precision(self) -> Precision:
        """How exactly float32 products are computed."""
        return self._precision

    @precision.setter
    def precision(self, value: Precision) -> None:
        self._precision = value
        self._changed()

    @property
    def deterministic(self) -> bool:
        """Whether sums run in a fixed order even where that costs much."""
        return self._deterministic

    @deterministic.setter
    def deterministic(self, value: bool) -> None:
        self._deterministic = value
        self._changed()

    @property
    def index_checks(self) -> IndexChecks:
        """Where eager calls check indices."""
        return self._index_checks

    @index_checks.setter
    def index_checks(self, value: IndexChecks) -> None:
        self._index_checks = value
        self._changed()

    @property
    def result_key(self) -> tuple[Any, ...]:
        """The values that change results, which a graph notes with its nodes."""
        return self._precision, self._deterministic

    @staticmethod
    def named(key: tuple[Any, ...]) -> dict[str, Any]:
        """The values of a `result_key` by name."""
        return dict(zip(("precision", "deterministic"), key, strict=True))

    @contextmanager
    def restored(self, key: tuple[Any, ...]) -> Iterator[None]:
        """Have in force inside the block what was when `key`, a `result_key`, was read."""
        previous = self.key
        self._precision, self._deterministic = key
        self._changed()
        try:
            yield
        finally:
            self._precision, self._deterministic, self._index_checks = previous
            self._changed()

    def among(self, names: Collection[str], wanted: Collection[str]) -> dict[str, Any]:
        """Those of the settings `names` that are `wanted`, by name."""
        return {name: getattr(self, name) for name in names if name in wanted}


settings = Settings()
