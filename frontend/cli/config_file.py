"""Settings from a TOML file, beneath those of the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyhal.hal.errors import message
from polyhal.training.options import OptionError, unknown_name

_TABLE = "train"


def read(path: Path, known: frozenset[str]) -> dict[str, Any]:
    """The settings in a TOML file, at its top level or in a table [train], with - or _ in their names.

    Raises OptionError for a file that cannot be read and for names that do not exist, with close matches.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise OptionError(message(None, f"{path} is not valid TOML: {error}")) from None
    except UnicodeDecodeError:
        raise OptionError(message(None, f"{path} is not text", expected="a TOML file in UTF-8")) from None
    except OSError as error:
        raise OptionError(
            message(None, f"--config {path} cannot be read: {error.strerror}", expected="a TOML file")
        ) from error
    table = data.pop(_TABLE, {})
    if not isinstance(table, dict):
        raise OptionError(
            message(
                None, f"{path} has {_TABLE} = {table!r}", expected=f"a table [{_TABLE}] or settings at the top level"
            )
        )
    found: dict[str, Any] = {}
    for name, value in {**data, **table}.items():
        key = name.replace("-", "_")
        if key not in known:
            raise unknown_name(name, known, str(path))
        found[key] = value
    return found


def merged(file: Mapping[str, Any], command_line: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for: the command line wins over the file, and `None` stands for not given."""
    given = {**file, **{k: v for k, v in command_line.items() if v is not None}}
    for pair in (("steps", "epochs"),):
        here = [k for k in pair if command_line.get(k) is not None]
        if len(here) == 1:
            # Asking for one of two ways to say the same thing on the command line replaces the other one in the file.
            given = {k: v for k, v in given.items() if k not in pair or k in here}
    return given
