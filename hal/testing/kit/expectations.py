"""Known gaps of a backend: cases that are unsupported, and cases that are expected to fail.

**Unsupported*: a permanent gap with a reason; the case is skipped. **Expected failure*: a known bug; the case runs, and
passing is an error, so that the list stays up to date (pytest's strict xfail). Cases are selected by glob patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from polyhal.hal.core.settings import toml_schema
from polyhal.hal.core.settings.toml_schema import Key, Rule, TableSchema


@dataclass(frozen=True, slots=True)
class Expectations:
    """Patterns of case ids, each with its reason."""

    unsupported: Mapping[str, str] = field(default_factory=dict)
    expected_failure: Mapping[str, str] = field(default_factory=dict)

    def is_unsupported(self, case: str) -> str | None:
        """Return the reason why `case` is not supported; None if it is supported."""
        return _find(self.unsupported, case)

    def is_expected_failure(self, case: str) -> str | None:
        """Return the reason why `case` is expected to fail; None if it is not."""
        return _find(self.expected_failure, case)

    def __or__(self, other: Expectations) -> Expectations:
        return Expectations(
            {**self.unsupported, **other.unsupported}, {**self.expected_failure, **other.expected_failure}
        )


def _find(patterns: Mapping[str, str], case: str) -> str | None:
    return next((reason for pattern, reason in patterns.items() if fnmatchcase(case, pattern)), None)


_REASONS = TableSchema(others=Key(str, rule=Rule(bool, "a reason in quotes")), optional=True)
_SCHEMA = TableSchema({"unsupported": _REASONS, "expected_failure": _REASONS})


def read(path: Path) -> Expectations:
    """Read a TOML file with the tables `unsupported` and `expected_failure` of pattern = reason.

    Raises ValueError with all other tables and all reasons that are not text.
    """
    tables = toml_schema.parse(str(path), path.read_text(encoding="utf-8"), _SCHEMA)
    return Expectations(tables.get("unsupported", {}), tables.get("expected_failure", {}))
