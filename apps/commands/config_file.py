"""The TOML configuration file of `polyhal train`. Options on the command line take precedence over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyhal.hal.errors import message
from polyhal.training.options import OptionError, unknown_name
from polyhal.utils.files import parse_toml

_TABLE = "train"
_ALTERNATIVES = (("steps", "epochs"), ("device", "devices"))
"""Pairs of alternative options, for the length of a run and for its devices."""


def read(path: Path, known: frozenset[str]) -> dict[str, Any]:
    """Read options from a TOML file: at the top level or in a table [train], spelled with - or _.

    Raises OptionError if the file cannot be read or contains an unknown name, with close matches.
    """
    try:
        data = parse_toml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise OptionError(message(None, f"{path} is not text", expected="a TOML file in UTF-8")) from None
    except ValueError as error:  # numbers of thousands of digits do not raise TOMLDecodeError
        raise OptionError(message(None, f"{path} is not valid TOML: {error}")) from None
    except OSError as error:
        problem = f"--config {path} cannot be read: {error.strerror}"
        raise OptionError(message(None, problem, expected="a TOML file")) from error
    if _exceeds_toml(data):
        raise OptionError(message(None, f"{path} has an integer beyond 64 bits, which TOML does not support"))
    table = data.pop(_TABLE, {})
    if not isinstance(table, dict):
        expected = f"a table [{_TABLE}] or settings at the top level"
        raise OptionError(message(None, f"{path} has {_TABLE} = {table!r}", expected=expected))
    options: dict[str, Any] = {}
    for name, value in {**data, **table}.items():
        key = name.replace("-", "_")
        if key not in known:
            raise unknown_name(name, known, str(path))
        options[key] = value
    return options


def _exceeds_toml(value: Any) -> bool:
    """Return whether a value contains an integer that Python parses, but may be unable to print."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, (dict, list)):
            parts.extend(part.values() if isinstance(part, dict) else part)
        elif isinstance(part, int) and not -(2**63) <= part < 2**63:
            return True
    return False


def merged(file: Mapping[str, Any], command_line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the file, overridden by the command line's, where None marks an absent option."""
    options = {**file, **{k: v for k, v in command_line.items() if v is not None}}
    for alternatives in _ALTERNATIVES:
        chosen = [k for k in alternatives if command_line.get(k) is not None]
        if len(chosen) == 1:
            # --steps on the command line replaces `epochs` in the file, and vice versa.
            options = {k: v for k, v in options.items() if k not in alternatives or k in chosen}
    return options
