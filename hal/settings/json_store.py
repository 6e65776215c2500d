"""Small JSON files that several processes read and replace: whole, or not there."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message


def read(path: Path, schema: int) -> dict[str, Any]:
    """The object in a file that `write` made. Raises FileNotFoundError, CorruptFileError and IncompatibleFileError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # bytes that are no UTF-8 are a ValueError too
        raise CorruptFileError(message(None, f"{path} is not valid JSON: {error}")) from error
    if not isinstance(found, dict):
        raise CorruptFileError(message(None, f"{path} holds a {type(found).__name__}", expected="an object"))
    if found.get("schema") != schema:
        raise IncompatibleFileError(
            message(None, f"{path} has schema {found.get('schema')!r}", expected=f"schema {schema}")
        )
    return found


def text_of(value: Mapping[str, Any]) -> str:
    """The text that `write` writes."""
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Replace `path` by `value`. A reader sees the old file or the new one. Raises OSError."""
    text = text_of(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
