"""The numbers of a captured step as plain data: named ones with their values, arithmetic on them, and random offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from polyhal.hal.capture.runtime_scalars import (
    OPERATIONS,
    DerivedScalar,
    RandomScalar,
    RandomStream,
    RuntimeScalar,
    derived,
)
from polyhal.hal.capture.scopes import distinct
from polyhal.hal.errors import CorruptFileError, message

_KINDS = (bool, int, float)


class ScalarTable:
    """Collects live numbers; `entries` and `streams` are plain data. An entry comes after those that it is made of."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.streams: list[RandomStream] = []
        self._known: dict[int, int] = {}
        self._names: set[str] = set()
        self._kept: list[RuntimeScalar] = []

    def add(self, live: RuntimeScalar) -> int:
        """The number of the entry for a live number."""
        if id(live) not in self._known:
            entry = self._described(live)
            self._known[id(live)] = len(self.entries)
            self._kept.append(live)
            self.entries.append(entry)
        return self._known[id(live)]

    def _described(self, live: RuntimeScalar) -> dict[str, Any]:
        if isinstance(live, RandomScalar):
            if live.stream not in self.streams:
                self.streams.append(live.stream)
            return {"stream": self.streams.index(live.stream), "start": live.start}
        if isinstance(live, DerivedScalar) and live.operation:
            operands = [{"number": self.add(x)} if isinstance(x, RuntimeScalar) else x for x in live.operands]
            return {"operation": live.operation, "operands": operands}
        name = distinct(live.name or "number", self._names)
        self._names.add(name)
        value = live.compute()
        return {"name": name, "value": value, **({"grows": live.increment} if live.increment else {})}


class Numbers(MutableMapping[str, Any]):
    """The named numbers of a loaded step: read them, set them; the next run uses what they are then."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self.grow: dict[str, int] = {}
        """By how much numbers grow at each run, before they are used."""

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
        return f"Numbers({self._values})"

    def start(self, name: str, value: Any, increment: Any) -> RuntimeScalar:
        """Have a number under a new name."""
        if name in self._values or type(value) not in _KINDS or type(increment) is not int:
            raise ValueError(f"number {name!r} is {value!r}")
        self._values[name] = value
        if increment:
            self.grow[name] = increment
        return RuntimeScalar(lambda: self._values[name], name, increment)

    def advance(self) -> None:
        """Let the numbers grow that do so at each run."""
        for name, step in self.grow.items():
            self._values[name] += step


def restore(entries: Any, streams: list[RandomStream], what: str) -> tuple[list[RuntimeScalar], Numbers]:
    """The live numbers of `NumberTable.entries`, and those of them that can be set. Raises CorruptFileError."""
    found: list[RuntimeScalar] = []
    numbers = Numbers()
    for i, entry in enumerate(entries):
        try:
            found.append(_restored(entry, found, streams, numbers))
        # Entries are data from a file, of any shape.
        except Exception as error:
            raise CorruptFileError(
                message("graph", f"number {i} of {what}: {type(error).__name__}: {error}")
            ) from error
    return found, numbers


def _restored(
    entry: dict[str, Any], before: list[RuntimeScalar], streams: list[RandomStream], numbers: Numbers
) -> RuntimeScalar:
    if "stream" in entry:
        start = entry["start"]
        if start is not None and type(start) is not int:
            raise ValueError(f"an offset of {start!r}")
        drawn = RandomScalar(streams[_index(entry["stream"])], start)
        drawn.stream.numbers.append(drawn)
        return drawn
    if "operation" in entry:
        if entry["operation"] not in OPERATIONS:
            raise ValueError(f"operation {entry['operation']!r}; expected one of {', '.join(OPERATIONS)}")
        operands = [before[_index(x["number"])] if isinstance(x, dict) else _number(x) for x in entry["operands"]]
        return derived(entry["operation"], *operands)
    return numbers.start(str(entry["name"]), entry["value"], entry.get("grows", 0))


def _index(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no index")
    return value


def _number(value: Any) -> Any:
    if type(value) not in _KINDS:
        raise ValueError(f"{value!r} is no number")
    return value


def refreshes(
    live: Sequence[RuntimeScalar], numbers: Numbers, streams: Sequence[RandomStream]
) -> list[Callable[[], object]]:
    """What a loaded step does before each run."""
    return [numbers.advance, *[s.draw for s in streams], *[x.refresh for x in live]]
