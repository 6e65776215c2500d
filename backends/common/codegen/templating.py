"""Source text of a program: a kernel file with its headers inlined and its constants defined in front.

Kernel files are valid on their own: `#include "name"` is resolved here so that a driver needs no search path, and every
constant has an `#ifndef` default that a definition overrides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r'^[ \t]*#include[ \t]+"([\w./]+)"[ \t]*$', re.MULTILINE)

Definitions = Mapping[str, str | int | bool]


class SourceFolder:
    """The shader files of one language, read once each; what `replaced` returns takes the place of a file's text."""

    def __init__(self, package: str, replaced: Callable[[str], str | None] | None = None) -> None:
        self._root = resources.files(package)
        self._replaced = replaced
        self._texts: dict[str, str] = {}

    def names(self) -> list[str]:
        """Paths of the files within the folder, sorted."""
        return sorted(_files(self._root))

    def shipped(self, name: str) -> str:
        """The text of a file of the package. Raises FileNotFoundError."""
        return self._root.joinpath(*name.split("/")).read_text(encoding="utf-8")

    def read(self, name: str) -> str:
        """The text of a file, as it is or as it is replaced. Raises FileNotFoundError."""
        if name not in self._texts:
            replaced = self._replaced(name) if self._replaced else None
            self._texts[name] = self.shipped(name) if replaced is None else replaced
        return self._texts[name]

    def is_replaced(self, name: str) -> bool:
        """Whether the text in use is not that of the package."""
        return name in self._texts and self._texts[name] != self.shipped(name)

    def parts(self, name: str) -> frozenset[str]:
        """A file and all that it includes."""
        found = {name}
        for included in _INCLUDE.findall(self.read(name)):
            found |= self.parts(included)
        return frozenset(found)

    def forget(self) -> None:
        """Read all files again."""
        self._texts.clear()

    def assemble(self, name: str, definitions: Definitions) -> str:
        """The text of a file with headers inlined, after one `#define` per definition (True is 1, False is 0)."""
        lines = [f"#define {key} {_text(value)}" for key, value in definitions.items()]
        return "\n".join([*lines, self._inline(name)])

    def origins(self, name: str) -> list[tuple[str, int]]:
        """File and line number of every line that `assemble` makes of a file, after the definitions."""
        found: list[tuple[str, int]] = []
        for number, line in enumerate(self.read(name).split("\n"), 1):
            match = _INCLUDE.fullmatch(line)
            found += self.origins(match.group(1)) if match else [(name, number)]
        return found

    def _inline(self, name: str) -> str:
        return _INCLUDE.sub(lambda match: self._inline(match.group(1)), self.read(name))


def _files(folder: Traversable, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".py", ".pyc")):
            yield f"{prefix}{entry.name}"


def _text(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value).replace("\n", " \\\n")
