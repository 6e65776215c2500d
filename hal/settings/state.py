"""Settings of the process that decide how ops are lowered. They are part of the key of every plan: they may change any time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Precision = Literal["highest", "high", "medium"]


class Settings:
    """What is in force. Set by the functions of `hal.precision` and `hal.determinism`, which say what the values mean."""

    __slots__ = ("_debug", "_deterministic", "_precision", "key")

    def __init__(self) -> None:
        self._precision: Precision = "highest"
        self._deterministic = False
        self._debug = False
        self._changed()

    def _changed(self) -> None:
        self.key = (self._precision, self._deterministic, self._debug)
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
    def debug(self) -> bool:
        """Whether eager calls check indices on every device."""
        return self._debug

    @debug.setter
    def debug(self, value: bool) -> None:
        self._debug = value
        self._changed()

    @staticmethod
    def named(key: tuple[Any, ...]) -> dict[str, Any]:
        """The values of a key that change results, by name."""
        return dict(zip(("precision", "deterministic"), key[:2], strict=True))

    @contextmanager
    def restored(self, key: tuple[Any, ...]) -> Iterator[None]:
        """Have in force inside the block what was when `key` was read."""
        previous = self.key
        self._precision, self._deterministic = key[:2]
        self._changed()
        try:
            yield
        finally:
            self._precision, self._deterministic, self._debug = previous
            self._changed()

    def among(self, names: Collection[str], wanted: Collection[str]) -> dict[str, Any]:
        """Those of the settings `names` that are `wanted`, by name."""
        return {name: getattr(self, name) for name in names if name in wanted}


settings = Settings()
