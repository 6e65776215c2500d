"""Source text of a program: a kernel file with its headers inlined and its constants defined in front.

Kernel files are valid on their own: `#include "name"` is resolved here so that a driver needs no search path, and every
constant has an `#ifndef` default that a definition overrides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

_INCLUDE = re.compile(r'^[ \t]*#include[ \t]+"([\w.]+)"[ \t]*$', re.MULTILINE)

Definitions = Mapping[str, str | int | bool]


class SourceFolder:
    """The shader files of one language, read once each."""

    def __init__(self, package: str) -> None:
        self._root = resources.files(package)
        self._texts: dict[str, str] = {}

    def read(self, name: str) -> str:
        """The text of a file, as it is. Raises FileNotFoundError."""
        if name not in self._texts:
            self._texts[name] = (self._root / name).read_text(encoding="utf-8")
        return self._texts[name]

    def assemble(self, name: str, definitions: Definitions) -> str:
        """The text of a file with headers inlined, after one `#define` per definition (True is 1, False is 0)."""
        lines = [f"#define {key} {_text(value)}" for key, value in definitions.items()]
        return "\n".join([*lines, self._inline(name)])

    def _inline(self, name: str) -> str:
        return _INCLUDE.sub(lambda match: self._inline(match.group(1)), self.read(name))


def _text(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value).replace("\n", " \\\n")
