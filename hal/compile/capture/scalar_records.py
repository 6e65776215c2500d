"""The runtime scalars of a captured step as plain data, for files: named values, arithmetic on them, and random offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from polyhal.hal.compile.capture.scopes import unique_name
from polyhal.hal.core.execution.runtime_scalars import (
    OPERATIONS,
    DerivedScalar,
    RandomScalar,
    RandomStream,
    RuntimeScalar,
    apply_operation,
)
from polyhal.hal.errors import CorruptFileError, message

_KINDS = (bool, int, float)


class ScalarTable:
    """Collects runtime scalars as plain data in `entries` and `streams`. Operands precede their results."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.streams: list[RandomStream] = []
        self._indices: dict[int, int] = {}
        self._names: set[str] = set()
        self._scalars: list[RuntimeScalar] = []
        """Keeps the identities in `_indices` taken."""

    def add(self, scalar: RuntimeScalar) -> int:
        """The index of the entry of a scalar."""
        if id(scalar) not in self._indices:
            entry = self._entry(scalar)
            self._indices[id(scalar)] = len(self.entries)
            self._scalars.append(scalar)
            self.entries.append(entry)
        return self._indices[id(scalar)]

    def _entry(self, scalar: RuntimeScalar) -> dict[str, Any]:
        if isinstance(scalar, RandomScalar):
            if scalar.stream not in self.streams:
                self.streams.append(scalar.stream)
            return {"stream": self.streams.index(scalar.stream), "start": scalar.start}
        if isinstance(scalar, DerivedScalar) and scalar.operation:
            operands = [{"number": self.add(x)} if isinstance(x, RuntimeScalar) else x for x in scalar.operands]
            return {"operation": scalar.operation, "operands": operands}
        name = unique_name(scalar.name or "number", self._names)
        self._names.add(name)
        value = scalar.compute()
        return {"name": name, "value": value, **({"grows": scalar.increment} if scalar.increment else {})}


class NamedScalars(MutableMapping[str, Any]):
    """The named numbers of a loaded step. Set them; the next run uses the new values."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._increments: dict[str, int] = {}
        """By how much numbers grow before each run."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Raises KeyError for a number that the step does not have, and TypeError for one of another type."""
        if name not in self._values:
            raise KeyError(f"the step has no number {name!r}; it has {', '.join(self._values) or 'none'}")
        kind = type(self._values[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise TypeError(
                message("graph", f"{name} is set to {value!r}", expected=f"a number of type {kind.__name__}")
            )
        self._values[name] = kind(value)

    def __delitem__(self, name: str) -> None:
        raise TypeError("the numbers of a step cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"NamedScalars({self._values})"

    def add(self, name: str, value: Any, increment: int) -> RuntimeScalar:
        """Add a number under a new name. Raises ValueError."""
        if name in self._values or type(value) not in _KINDS or type(increment) is not int:
            raise ValueError(f"number {name!r} is {value!r}")
        self._values[name] = value
        if increment:
            self._increments[name] = increment
        return RuntimeScalar(lambda: self._values[name], name, increment)

    def advance(self) -> None:
        """Let numbers grow that do so from run to run."""
        for name, increment in self._increments.items():
            self._values[name] += increment


def restore(entries: Any, streams: list[RandomStream], what: str) -> tuple[list[RuntimeScalar], NamedScalars]:
    """The scalars of `ScalarTable.entries`, and those of them that can be set. Raises CorruptFileError."""
    scalars: list[RuntimeScalar] = []
    named = NamedScalars()
    for i, entry in enumerate(entries):
        try:
            scalars.append(_restored(entry, scalars, streams, named))
        # Entries are data from a file, of any shape.
        except Exception as error:
            raise CorruptFileError(
                message("graph", f"number {i} of {what}: {type(error).__name__}: {error}")
            ) from error
    return scalars, named


def _restored(
    entry: dict[str, Any], earlier: list[RuntimeScalar], streams: list[RandomStream], named: NamedScalars
) -> RuntimeScalar:
    if "stream" in entry:
        start = entry["start"]
        if start is not None and type(start) is not int:
            raise ValueError(f"an offset of {start!r}")
        scalar = RandomScalar(streams[_index(entry["stream"])], start)
        scalar.stream.scalars.append(scalar)
        return scalar
    if "operation" in entry:
        if entry["operation"] not in OPERATIONS:
            raise ValueError(f"operation {entry['operation']!r}; expected one of {', '.join(OPERATIONS)}")
        operands = [earlier[_index(x["number"])] if isinstance(x, dict) else _number(x) for x in entry["operands"]]
        return apply_operation(entry["operation"], *operands)
    return named.add(str(entry["name"]), entry["value"], entry.get("grows", 0))


def _index(value: int) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no index")
    return value


def _number(value: Any) -> Any:
    if type(value) not in _KINDS:
        raise ValueError(f"{value!r} is no number")
    return value


def replay_actions(
    scalars: Sequence[RuntimeScalar], named: NamedScalars, streams: Sequence[RandomStream]
) -> list[Callable[[], object]]:
    """Return the actions of a loaded step before each run."""
    return [named.advance, *[s.draw for s in streams], *[x.refresh for x in scalars]]
