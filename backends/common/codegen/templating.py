"""Program text: a kernel file with its headers inlined, after definitions of its constants.

Kernel files compile without definitions. `#include "name"` is resolved here, so drivers need no search path. Every
constant has an `#ifndef` default in the file, which a definition overrides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from polyhal.backends.common.codegen.kernel_spans import Spans, kernel_spans, only_kernel

_INCLUDE = re.compile(r'^[ \t]*#include[ \t]+"([\w./]+)"[ \t]*$', re.MULTILINE)

Definitions = Mapping[str, str | int | bool]


class SourceFolder:
    """The shader files of one language, each read once. `override(name)` may return text that replaces a file."""

    def __init__(self, package: str, override: Callable[[str], str | None] | None = None) -> None:
        self._root = resources.files(package)
        self._override = override
        self._texts: dict[str, str] = {}
        self._inlined: dict[str, str] = {}
        self._spans: dict[str, Spans] = {}

    def names(self) -> list[str]:
        """List the paths of the sources within the folder, sorted."""
        return sorted(_files(self._root))

    def shipped(self, name: str) -> str:
        """Return the text of a file of the package. Raises FileNotFoundError."""
        return self._root.joinpath(*name.split("/")).read_text(encoding="utf-8")

    def read(self, name: str) -> str:
        """Return the text of a file, or the text that overrides it. Raises FileNotFoundError."""
        if name not in self._texts:
            override = self._override(name) if self._override else None
            self._texts[name] = self.shipped(name) if override is None else override
        return self._texts[name]

    def is_replaced(self, name: str) -> bool:
        """Return whether an override replaces this file."""
        return name in self._texts and self._texts[name] != self.shipped(name)

    def closure(self, name: str) -> frozenset[str]:
        """Return the names of a file and of all files that it includes."""
        names = {name}
        for included in _INCLUDE.findall(self.read(name)):
            names |= self.closure(included)
        return frozenset(names)

    def forget(self) -> None:
        """Drop all cached texts, so that files are read again."""
        self._texts.clear()
        self._inlined.clear()
        self._spans.clear()

    def assemble(self, name: str, definitions: Definitions, kernel: str = "") -> str:
        """Return a file with headers inlined, after one `#define` per definition (True is written as 1, False as 0).

        With `kernel`, lines of other kernels are blank.
        """
        lines = [f"#define {key} {_text(value)}" for key, value in definitions.items()]
        return "\n".join([*lines, self._only(name, kernel) if kernel else self._inline(name)])

    def before_kernels(self, name: str) -> str:
        """Return the part of a file, with headers inlined, that programs of each of its kernels contain."""
        text = self._inline(name)
        starts = [start for spans in self._spans_of(name).values() for start, _ in spans]
        return text[: min(starts, default=len(text))]

    def origins(self, name: str) -> list[tuple[str, int]]:
        """Return file and line number of every line that `assemble` puts after the definitions."""
        lines: list[tuple[str, int]] = []
        for number, line in enumerate(self.read(name).split("\n"), 1):
            match = _INCLUDE.fullmatch(line)
            lines += self.origins(match.group(1)) if match else [(name, number)]
        return lines

    def _only(self, name: str, kernel: str) -> str:
        return only_kernel(self._inline(name), self._spans_of(name), kernel)

    def _spans_of(self, name: str) -> Spans:
        if name not in self._spans:
            self._spans[name] = kernel_spans(self._inline(name))
        return self._spans[name]

    def _inline(self, name: str) -> str:
        text = self._inlined.get(name)
        if text is None:
            text = _INCLUDE.sub(lambda match: self._inline(match.group(1)), self.read(name))
            self._inlined[name] = text
        return text


def _files(folder: Traversable, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".md", ".py", ".pyc")):
            yield f"{prefix}{entry.name}"


def _text(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value).replace("\n", " \\\n")
