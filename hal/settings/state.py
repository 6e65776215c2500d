"""Settings of the process that decide how ops are lowered. They are part of the key of every plan: they may change any time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from polyhal.hal.checks.observer import Observer

Precision = Literal["highest", "high", "medium"]


class Settings:
    """What is in force. Set by the functions beside this file and in `hal.checks`, which say what the values mean."""

    __slots__ = ("_deterministic", "_index_checks", "_observers", "_precision", "_round", "key")

    def __init__(self) -> None:
        self._precision: Precision = "highest"
        self._deterministic = False
        self._index_checks = True
        self._observers: tuple[Observer, ...] = ()
        self._round = 0
        self._changed()

    def _changed(self) -> None:
        self.key = (
            self._precision,
            self._deterministic,
            self._index_checks + 2 * bool(self._observers) + 4 * self._round,
        )
        """All values, for the hot path."""

    def forget_plans(self) -> None:
        """Have no plan and no captured step found again that was made so far."""
        self._round += 1
        self._changed()

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
    def index_checks(self) -> bool:
        """Whether eager calls on CPUs check indices."""
        return self._index_checks

    @index_checks.setter
    def index_checks(self, value: bool) -> None:
        self._index_checks = value
        self._changed()

    @property
    def observers(self) -> tuple[Observer, ...]:
        """What looks at every launch (see `hal.checks`); one may be there several times."""
        return self._observers

    @observers.setter
    def observers(self, value: tuple[Observer, ...]) -> None:
        self._observers = value
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
        previous = self.result_key
        self._precision, self._deterministic = key
        self._changed()
        try:
            yield
        finally:
            self._precision, self._deterministic = previous
            self._changed()

    def among(self, names: Collection[str], wanted: Collection[str]) -> dict[str, Any]:
        """Those of the settings `names` that are `wanted`, by name."""
        return {name: getattr(self, name) for name in names if name in wanted}


settings = Settings()
