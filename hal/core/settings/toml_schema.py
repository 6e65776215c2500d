"""Schemas of TOML files: expected keys, and all faults of a file at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from polyhal.hal.core.settings import toml
from polyhal.hal.printable import printable_line

_LARGEST = 1 << 64
"""Bound of numbers. Larger ones could overflow once they are converted to other units."""
_TYPES = {str: "a text in quotes", bool: "true or false", int: "a whole number", float: "a number"}


class Rule(NamedTuple):
    """A condition on a value of the right type."""

    holds: Callable[[Any], bool]
    expected: str


@dataclass(frozen=True, slots=True)
class Key:
    """A value of a table."""

    type: type[str] | type[bool] | type[int] | type[float]
    """Type of the value; `float` also accepts integers."""
    many: bool = False
    """True for a list of values."""
    optional: bool = False
    zero: bool = False
    """True if a number may be 0. Negative, infinite and NaN values, and values of 2^64 or more, are always faults."""
    choices: tuple[str, ...] = ()
    """Permitted texts; empty for any text."""
    rule: Rule | None = None

    @property
    def expected(self) -> str:
        """Description of a valid value."""
        if self.rule is not None:
            return self.rule.expected
        one = f"one of {', '.join(self.choices)}" if self.choices else _TYPES[self.type]
        if self.type in (int, float):
            one += ", 0 or more" if self.zero else " above 0"
        return f"a list, each {one}" if self.many else one

    def accepts(self, value: Any) -> bool:
        """Return whether a value has the type, is in the range, and satisfies the rule."""
        typed = (
            isinstance(value, list) and all(map(self._accepts_one, value)) if self.many else self._accepts_one(value)
        )
        return typed and (self.rule is None or self.rule.holds(value))

    def _accepts_one(self, value: Any) -> bool:
        types = (int, float) if self.type is float else self.type
        if not isinstance(value, types) or (isinstance(value, bool) and self.type is not bool):
            return False
        number: Any = value
        if self.type in (int, float):
            return bool(0 < number < _LARGEST or (self.zero and number == 0))
        return not self.choices or value in self.choices


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table of keys and of tables."""

    keys: Mapping[str, Key | TableSchema] = field(default_factory=dict)
    optional: bool = False
    others: Key | TableSchema | None = None
    """Values of keys with any other name; None if other names are faults."""
    many: bool = False
    """True for a list of such tables."""
    standards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Tables of values for absent keys, by the names that the optional key `standard` may have."""


class Fault(NamedTuple):
    """One missing, unknown or invalid key of a file."""

    section: str
    """Path of the table, joined by dots; empty at the top of the file."""
    key: str
    value: Any
    """None if the key is missing."""
    expected: str
    kind: str
    """`lacks`, `has an unknown` or `has`."""

    def __str__(self) -> str:
        where = f"[{self.section}] " if self.section else ""
        if self.kind == "lacks":
            return f"{where}lacks {self.key} (expected {self.expected})"
        return f"{where}{self.kind} {self.key} = {_short(self.value)} (expected {self.expected})"


class FaultyFileError(ValueError):
    """A file with faults: `faults` has all of them, the message names each."""

    def __init__(self, file: str, faults: Iterable[Fault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        count = f"{len(self.faults)} faults" if len(self.faults) > 1 else "a fault"
        super().__init__(printable_line(f"{file} has {count}: {'; '.join(map(str, self.faults))}"))


def parse(file: str, text: str, schema: TableSchema) -> dict[str, Any]:
    """Return the tables of a file. Raises ValueError if its text is not TOML, and FaultyFileError with all faults."""
    return checked(file, parse_toml(file, text), schema)


def parse_toml(file: str, text: str) -> dict[str, Any]:
    """Return the unchecked tables of a file. Raises ValueError if its text is not TOML."""
    try:
        return toml.parse(text)
    except ValueError as error:  # also for an integer with too many digits
        raise ValueError(f"{file} is not a TOML file: {error}") from error


def checked(file: str, tables: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """Return a file's tables with the values of their standards. Raises FaultyFileError with all faults."""
    filled = _filled(tables, schema)
    if found := list(faults(filled, schema)):
        raise FaultyFileError(file, found)
    return filled


def _filled(tables: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """Return tables with the values of their standards; of all standards if the name is invalid, so that no key is missing."""
    if schema.standards and "standard" in tables:
        chosen = schema.standards.get(str(tables["standard"]))
        tables = _merged([*schema.standards.values()] if chosen is None else [chosen], tables)
    return {
        name: _filled(value, inner)
        if isinstance(value, dict) and isinstance(inner := schema.keys.get(name), TableSchema)
        else value
        for name, value in tables.items()
    }


def _merged(defaults: Iterable[Mapping[str, Any]], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables in which later values replace earlier ones."""
    merged: dict[str, Any] = {}
    for tables in (*defaults, own):
        for name, value in tables.items():
            earlier = merged.get(name)
            if isinstance(earlier, dict) and isinstance(value, dict):
                value = _merged([earlier], value)
            merged[name] = value
    return merged


def faults(tables: Mapping[str, Any], schema: TableSchema, section: str = "") -> Iterator[Fault]:
    """Yield each key that is missing, unknown, or not of its type or range."""
    for name, value in tables.items():
        if name == "standard" and schema.standards:
            yield from _faults_of(section, name, value, Key(str, choices=tuple(schema.standards)))
        elif name in schema.keys:
            continue
        elif schema.others is None:
            yield Fault(section, name, value, _closest(name, schema), "has an unknown")
        else:
            yield from _faults_of(section, name, value, schema.others)
    for name, expected in schema.keys.items():
        if name in tables:
            yield from _faults_of(section, name, tables[name], expected)
        elif not expected.optional:
            text = expected.expected if isinstance(expected, Key) else _listed(expected)
            yield Fault(section, name, None, text, "lacks")


def _faults_of(section: str, name: str, value: Any, expected: Key | TableSchema) -> Iterator[Fault]:
    """Yield the faults of a value."""
    if isinstance(expected, Key):
        if not expected.accepts(value):
            is_large = isinstance(value, (int, float)) and value >= _LARGEST
            yield Fault(section, name, value, f"{expected.expected}{' and below 2^64' if is_large else ''}", "has")
        return
    path = f"{section}.{name}" if section else name
    if expected.many and isinstance(value, list) and all(isinstance(v, dict) for v in value):
        for number, table in enumerate(value, 1):
            yield from faults(table, expected, f"{path}.{number}")
    elif not expected.many and isinstance(value, dict):
        yield from faults(value, expected, path)
    else:
        yield Fault(section, name, value, _listed(expected), "has")


def _listed(table: TableSchema) -> str:
    names = [name for name, key in table.keys.items() if not key.optional]
    kind = "a list of tables" if table.many else "a table"
    return f"{kind} with {', '.join(names)}" if names else f"{kind} of numbers by name" if table.others else kind


def _closest(name: str, table: TableSchema) -> str:
    """Return the most similar key, or all keys."""
    return next(iter(difflib.get_close_matches(name, table.keys, 1)), "") or f"one of {', '.join(table.keys)}"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python limits the digits of integers
        return "a number with too many digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
