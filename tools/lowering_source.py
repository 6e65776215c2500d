"""Static call graph of a backend's lowering: definitions reached by an expression, and kernel files that they name.

It reads source text, so that backends with missing drivers or packages are also covered.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TABLE = "LOWERINGS"
_SHARED = "support"
"""Package of helpers, whose definitions count as part of the packages that use them."""

Definition = tuple[str, str]
"""A module and a top-level name in it."""


@dataclass(frozen=True)
class LoweringModule:
    """A parsed module."""

    name: str
    path: Path
    definitions: Mapping[str, ast.AST]
    modules: Mapping[str, str] = field(default_factory=dict)
    """Full names of imported modules, by local name."""
    names: Mapping[str, Definition] = field(default_factory=dict)
    """Imported definitions, by local name."""

    @property
    def room(self) -> str:
        """Return the folder of the module."""
        return self.name.split(".")[-2]


@dataclass(frozen=True, slots=True)
class Mentions:
    """Names and strings in some source text."""

    references: frozenset[Definition]
    """Definitions of the lowering package."""
    texts: frozenset[str]
    """String literals."""
    patterns: frozenset[str]
    """f-strings, as regular expressions with a group for each expression."""


class LoweringSource:
    """The lowering package of one backend, in `folder`, whose full name is `package`; `kernels` are its kernel files."""

    def __init__(self, folder: Path, package: str, kernels: Iterable[str]) -> None:
        self._kernels = frozenset(kernels)
        paths = {_module_name(folder, package, path): path for path in sorted(folder.rglob("*.py"))}
        self._modules = {name: _parse(name, path, paths) for name, path in paths.items()}
        self._mentions: dict[Definition, Mentions] = {}
        self._matches: dict[str, list[re.Match[str]]] = {}

    def ops(self) -> Iterator[tuple[str, str, ast.AST]]:
        """Yield (op, module, expression that lowers it) for all lowering tables."""
        for module in self._modules.values():
            if _TABLE in module.definitions:
                yield from ((op, module.name, node) for op, node in _entries(module, _value(module, _TABLE)))

    def mentions(self, module: str, node: ast.AST) -> Mentions:
        """Return the names and strings in an expression of `module`."""
        home = self._modules[module]
        references, texts, patterns = set(), set(), set()
        for n in ast.walk(node):
            if isinstance(n, ast.Name):
                references.add((module, n.id) if n.id in home.definitions else home.names.get(n.id))
            elif isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name):
                references.add((home.modules.get(n.value.id, ""), n.attr))
            elif isinstance(n, ast.JoinedStr):
                patterns.add("".join(re.escape(literal(part)) or r"(\w+)" for part in n.values))
            elif text := literal(n):
                texts.add(text)
        return Mentions(
            frozenset(r for r in references if r and self._defines(r)), frozenset(texts), frozenset(patterns)
        )

    def mentions_of(self, definition: Definition) -> Mentions:
        """Return the names and strings in the source of a definition."""
        if definition not in self._mentions:
            self._mentions[definition] = self.mentions(definition[0], self._node(definition))
        return self._mentions[definition]

    def reached(self, start: Iterable[Definition]) -> set[Definition]:
        """Return `start` and the definitions that it refers to, directly or indirectly."""
        seen: set[Definition] = set()
        pending = list(start)
        while pending:
            definition = pending.pop()
            if definition not in seen:
                seen.add(definition)
                pending += self.mentions_of(definition).references
        return seen

    def path(self, module: str) -> Path:
        """Return the file of a module."""
        return self._modules[module].path

    def kernels_named(self, definition: Definition, *known: Collection[str]) -> set[str]:
        """Return the kernel files that a definition names.

        In `f"folder/{...}"` the rest is among the strings `known`; the first collection with a match counts.
        """
        mentions = self.mentions_of(definition)
        files = set(mentions.texts & self._kernels)
        for pattern in mentions.patterns:
            candidates = ({m[0] for m in self._matches_of(pattern) if m[1] in strings} for strings in known)
            files |= next((c for c in candidates if c), set())
        return files

    def _matches_of(self, pattern: str) -> list[re.Match[str]]:
        """Return the matches of a pattern of one group among the kernel files."""
        if pattern not in self._matches:
            found = [m for k in self._kernels if (m := re.fullmatch(pattern, k))]
            self._matches[pattern] = [m for m in found if m.lastindex == 1]
        return self._matches[pattern]

    def room(self, module: str) -> str:
        """Return the package of a module."""
        return self._modules[module].room

    def families(self, module: str) -> dict[str, Mapping[str, Any]]:
        """Return the search spaces (values by field) of tunable families in a module's package or in helpers that it uses."""
        home = self._modules[module]
        families: dict[str, Mapping[str, Any]] = {}
        for definition in self.reached((module, name) for name in home.definitions):
            call = getattr(self._node(definition), "value", None)
            near = self.room(definition[0]) in (home.room, _SHARED)
            if near and isinstance(call, ast.Call) and ast.unparse(call.func).startswith("Family["):
                family, space = (ast.literal_eval(a) for a in call.args[:2])
                families[family] = space
        return dict(sorted(families.items()))

    def _defines(self, definition: Definition) -> bool:
        module, name = definition
        return module in self._modules and name in self._modules[module].definitions

    def _node(self, definition: Definition) -> ast.AST:
        return self._modules[definition[0]].definitions[definition[1]]


def literal(node: ast.AST) -> str:
    """Return the text of a string literal, empty for other nodes."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _module_name(folder: Path, package: str, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _parse(name: str, path: Path, modules: Mapping[str, Path]) -> LoweringModule:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    definitions: dict[str, ast.AST] = {}
    aliases: dict[str, str] = {}
    names: dict[str, Definition] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            definitions |= {n.id: node for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                local, full = alias.asname or alias.name, f"{node.module}.{alias.name}"
                if full in modules or node.module not in modules:
                    aliases[local] = full
                if full not in modules:
                    names[local] = node.module, alias.name
    return LoweringModule(name, path, definitions, aliases, names)


# --- lowering tables -------------------------------------------------------------------------------------------------


def _value(module: LoweringModule, name: str) -> ast.AST:
    node = module.definitions[name]
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    assert node.value is not None
    return node.value


def _entries(module: LoweringModule, table: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the (op, expression) pairs of a lowering table, given as an expression."""
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            yield from [(literal(key), value)] if key is not None else _entries(module, value)
    elif isinstance(table, ast.DictComp):
        source = table.generators[0].iter
        assert isinstance(source, ast.Name)
        yield from ((op, table.value) for op in ast.literal_eval(_value(module, source.id)))
    elif isinstance(table, ast.Call):
        yield from _shared_table(module, table)


def _shared_table(module: LoweringModule, call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """Yield the entries of a table that `backends/common` makes from builders, each with the builders that it is bound to.

    The function only binds its arguments, so it is called with placeholders, which are then found in the closures.
    """
    if isinstance(call.func, ast.Attribute):
        home, name = module.modules[ast.unparse(call.func.value)], call.func.attr
    else:
        home, name = module.names[ast.unparse(call.func)]
    options = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
    builders = {id(stand_in := object()): (stand_in, argument) for argument in call.args}
    table = getattr(importlib.import_module(home), name)(*(s for s, _ in builders.values()), **options)
    for op, function in table.items():
        bound = [
            builders[id(c.cell_contents)][1] for c in function.__closure__ or () if id(c.cell_contents) in builders
        ]
        yield op, ast.Tuple(bound, ast.Load()) if bound else call
