"""Settings of the process that affect the lowering of ops. They may change at any time, so every plan's key contains them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from polyhal.hal.core.dispatch.observer import Observer

Precision = Literal["highest", "high", "medium"]


class Settings:
    """Current settings. Set and documented by the functions of this package and of `hal.system.checks`."""

    __slots__ = (
        "_deterministic",
        "_index_checks",
        "_observers",
        "_precision",
        "_round",
        "is_observed",
        "key",
        "result_key",
    )

    def __init__(self) -> None:
        self._precision: Precision = "highest"
        self._deterministic = False
        self._index_checks = True
        self._observers: tuple[Observer, ...] = ()
        self._round = 0
        self._changed()

    def _changed(self) -> None:
        self.is_observed = bool(self._observers)
        """True if there are observers, for the hot path."""
        self.result_key: tuple[Any, ...] = (self._precision, self._deterministic)
        """The settings that affect results, which a graph records with its nodes."""
        self.key = (
            self._precision,
            self._deterministic,
            self._index_checks + 2 * bool(self._observers) + 4 * self._round,
        )
        """All values, for the hot path."""

    def forget_plans(self) -> None:
        """Invalidate all existing plans and captured steps."""
        self._round += 1
        self._changed()

    @property
    def precision(self) -> Precision:
        """Precision of float32 products."""
        return self._precision

    @precision.setter
    def precision(self, value: Precision) -> None:
        self._precision = value
        self._changed()

    @property
    def deterministic(self) -> bool:
        """True if sums run in a fixed order even if that is much slower."""
        return self._deterministic

    @deterministic.setter
    def deterministic(self, value: bool) -> None:
        self._deterministic = value
        self._changed()

    @property
    def index_checks(self) -> bool:
        """True if eager calls on CPUs check indices."""
        return self._index_checks

    @index_checks.setter
    def index_checks(self, value: bool) -> None:
        self._index_checks = value
        self._changed()

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Observers of every launch (see `hal.system.checks`); an observer may occur several times."""
        return self._observers

    @observers.setter
    def observers(self, value: tuple[Observer, ...]) -> None:
        self._observers = value
        self._changed()

    @staticmethod
    def named(key: tuple[Any, ...]) -> dict[str, Any]:
        """Return the values of a `result_key` by name."""
        return dict(zip(("precision", "deterministic"), key, strict=True))

    @contextmanager
    def restored(self, key: tuple[Any, ...]) -> Iterator[None]:
        """Restore the settings of `key`, a `result_key`, inside the block."""
        previous = self.result_key
        self._precision, self._deterministic = key
        self._changed()
        try:
            yield
        finally:
            self._precision, self._deterministic = previous
            self._changed()

    def among(self, names: Collection[str], wanted: Collection[str]) -> dict[str, Any]:
        """Return the settings in both `names` and `wanted`, by name."""
        return {name: getattr(self, name) for name in names if name in wanted}


settings = Settings()
