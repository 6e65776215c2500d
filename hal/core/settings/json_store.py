"""Small JSON files that several processes read and replace atomically."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polyhal.hal.core.settings.atomic import replacing
from polyhal.hal.core.settings.file_lock import ExclusiveBlock, exclusive
from polyhal.hal.core.settings.trust import read_regular
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message

_PATIENCE = 10.0
"""Seconds to wait for a process that changes the same file, which takes milliseconds."""


def parse(text: str | bytes, what: object) -> Any:
    """Parse JSON of a file, called `what` in messages. Raises CorruptFileError for anything else."""
    try:
        return json.loads(text)
    # Other kinds of ValueError are raised for bytes that are not UTF-8, and for integers of thousands of digits.
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CorruptFileError(message(None, f"{what} is not valid JSON: {problem}")) from error


def read(path: Path, schema: int) -> dict[str, Any]:
    """Return the object in a file written by `write`. Raises FileNotFoundError, CorruptFileError and IncompatibleFileError."""
    found = parse(read_regular(path), path)
    if not isinstance(found, dict):
        raise CorruptFileError(message(None, f"{path} holds a {type(found).__name__}", expected="an object"))
    if found.get("schema") != schema:
        raise IncompatibleFileError(
            message(None, f"{path} has schema {found.get('schema')!r}", expected=f"schema {schema}")
        )
    return found


def text_of(value: Mapping[str, Any]) -> str:
    """Return the text that `write` writes: one record per line, so that a change of a record changes one line.

    A record is an item of a list, or an object without lists and objects in it. Raises ValueError for NaN and infinities.
    """
    return "\n".join(_lines(value, 0)) + "\n"


def _lines(value: Any, depth: int) -> Iterator[str]:
    """Yield the lines of an object or a list that is not a record, each but the first and the last indented."""
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    pairs = [(f"{_text(str(k))}: ", v) for k, v in value.items()] if opening == "{" else [("", v) for v in value]
    yield opening
    for position, (key, item) in enumerate(pairs):
        is_record = opening == "[" or not _nests(item)
        first, *rest = [_text(item)] if is_record else list(_lines(item, depth + 1))
        pad, end = " " * (depth + 1), "," if position + 1 < len(pairs) else ""
        lines = [f"{pad}{key}{first}", *rest]
        lines[-1] += end
        yield from lines
    yield " " * depth + closing


def _nests(value: Any) -> bool:
    """Return whether a value contains lists or objects."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(x, Mapping | list | tuple) for x in items)


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Replace `path` by `value`. A reader reads either the old or the new file. Raises OSError."""
    data = text_of(value).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(data)


def changing(path: Path) -> ExclusiveBlock:
    """Lock a file while the block reads, changes and writes it, so that no concurrent change is lost.

    Raises OSError, also if another process holds the lock much longer than a change takes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return exclusive(path.with_name(f".{path.name}.lock"), _PATIENCE)
