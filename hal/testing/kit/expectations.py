"""What a backend's authors know to be missing or wrong: two lists, so that a green run says something.

*Unsupported* is permanent and has a reason; the case is skipped. *Expected failure* is a bug that is known; the case
runs, and it is an error when it passes, so that the list cannot rot. Both name cases by glob pattern.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Expectations:
    """Patterns of case ids, each with its reason."""

    unsupported: Mapping[str, str] = field(default_factory=dict)
    expected_failure: Mapping[str, str] = field(default_factory=dict)

    def is_unsupported(self, case: str) -> str | None:
        """The reason why `case` is not supported, or None."""
        return _find(self.unsupported, case)

    def is_expected_failure(self, case: str) -> str | None:
        """The reason why `case` is known to fail, or None."""
        return _find(self.expected_failure, case)

    def __or__(self, other: Expectations) -> Expectations:
        return Expectations(
            {**self.unsupported, **other.unsupported}, {**self.expected_failure, **other.expected_failure}
        )


def _find(patterns: Mapping[str, str], case: str) -> str | None:
    return next((reason for pattern, reason in patterns.items() if fnmatchcase(case, pattern)), None)


def read(path: Path) -> Expectations:
    """Expectations from a TOML file with the tables `unsupported` and `expected_failure` of pattern = reason.

    Raises ValueError for other tables and for reasons that are no text.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    known = {"unsupported", "expected_failure"}
    if set(tables) - known:
        raise ValueError(
            f"{path} has {', '.join(sorted(set(tables) - known))}; expected the tables unsupported and expected_failure"
        )
    for name, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(r, str) and r for r in table.values()):
            raise ValueError(f"{path}: {name} must map patterns to reasons")
    return Expectations(tables.get("unsupported", {}), tables.get("expected_failure", {}))
