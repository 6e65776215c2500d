"""TOML files with unverified content."""

from __future__ import annotations

import tomllib
from typing import Any


def parse(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises TOMLDecodeError, a ValueError, also for nesting beyond Python's stack."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None
