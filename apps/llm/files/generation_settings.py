"""Defaults of generation in a model's files, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyhal.hal.errors import CorruptFileError, message

_RANGES = {
    "temperature": (float, 0, 100, "0 to 100"),
    "top_k": (int, 0, 1 << 31, "0 or more"),
    "top_p": (float, 0, 1, "0 to 1"),
}


def checked_generation(settings: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return settings of generation. Raises CorruptFileError for a value that is not in its range."""
    for name, (kind, low, high, expected) in _RANGES.items():
        value = settings.get(name)
        is_number = type(value) is int or (kind is float and type(value) is float)
        if value is not None and not (is_number and low <= value <= high):
            raise CorruptFileError(message("open_model", f"{name} of {path} is {value!r:.80}", expected=expected))
    return settings
