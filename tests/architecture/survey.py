"""The parsed source of a checkout: packages and their imports, names, docstrings. The tests here and `table` read it."""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PACKAGES = {
    "hal": "polyhal.hal",
    "backends": "polyhal.backends",
    "shaders": "polyhal.shaders",
    "frontend": "polyhal",
    "apps": "polyhal",
    "polyhal_autoload": "polyhal_autoload",
}
_AT_IMPORT, _LAZY, _TYPING = "at import", "lazy", "typing"
_PRODUCER_MAP = re.compile(r"\{[^{}]*for \w+(?:, \w+)? in enumerate\((?:self\.)?_?\w*\.?nodes\)[^{}]*outputs[^{}]*\}")


def blocks(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements, handlers and cases directly within a node. Expressions, which are far more, are left out."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        within = getattr(node, name, ())
        yield from within if isinstance(within, list) else ()


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a module of the project: importer, imported module, and the time of the import."""

    source: str
    target: str
    when: str


class Tree:
    """The parsed source of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {
            p: p.read_text(encoding="utf-8") for folder in PACKAGES for p in sorted((root / folder).rglob("*.py"))
        }
        self.parsed = _without_garbage_collection(lambda: {p: ast.parse(text) for p, text in self.files.items()})
        self.modules = {self.module(p): p for p in self.files}

    def module(self, path: Path) -> str:
        """Return the import name of a file."""
        folder, *rest = path.relative_to(self.root).with_suffix("").parts
        parts = [PACKAGES[folder], *rest]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def nodes(self) -> dict[Path, list[ast.AST]]:
        """All nodes of each file, outer ones first."""
        return _without_garbage_collection(lambda: {p: list(ast.walk(parsed)) for p, parsed in self.parsed.items()})

    @cached_property
    def imports(self) -> list[Import]:
        """Every import between modules of the project."""
        return [i for path in self.files for i in self._imports(path)]

    def _imports(self, path: Path) -> Iterator[Import]:
        source = self.module(path)
        pending: list[tuple[ast.AST, str]] = [(self.parsed[path], _AT_IMPORT)]
        while pending:
            node, when = pending.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                when = _LAZY
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                when = _TYPING
            for target in self._targets(node):
                yield Import(source, target, when)
            pending += [(child, when) for child in blocks(node)]

    def _targets(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in self.modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
            inner = [name for name in names if name in self.modules]
            yield from inner
            if len(inner) < len(names) and node.module in self.modules:
                yield node.module

    def functions(self, under: str = "") -> Iterator[ast.FunctionDef]:
        """Return every function and method below a folder."""
        for path, nodes in self.nodes.items():
            if path.is_relative_to(self.root / under):
                yield from (n for n in nodes if isinstance(n, ast.FunctionDef))


def _without_garbage_collection(make: Callable[[], T]) -> T:
    """Call `make` without garbage collection, which would take longer and find none among millions of new objects."""
    gc.disable()
    try:
        return make()
    finally:
        gc.enable()


@functools.cache
def this_tree() -> Tree:
    """Return the source of this checkout, parsed once for all tests."""
    return Tree(Path(__file__).parents[2])


@dataclass(frozen=True, slots=True)
class Rooms:
    """The rooms of a package: its direct modules and its subpackages. `floors` is the longest chain of imports."""

    count: int
    arrows: int
    upward: int
    """Arrows, made lazily or for types only, to a room on the same floor or above."""
    floors: int


def rooms(tree: Tree, package: str, without: str = "testing") -> Rooms:
    """Return the rooms of `package` and the imports between them."""
    arrows: dict[tuple[str, str], set[str]] = defaultdict(set)
    names = {_room(m, package) for m in tree.modules} - {"", without}
    for i in tree.imports:
        ends = _room(i.source, package), _room(i.target, package)
        if ends[0] != ends[1] and set(ends) <= names:
            arrows[ends].add(i.when)
    eager = [ends for ends, when in arrows.items() if _AT_IMPORT in when]
    floor = _floors(names, eager)
    upward = sum(floor[a] <= floor[b] for a, b in arrows)
    return Rooms(len(names), len(arrows), upward, 1 + max(floor.values(), default=-1))


def _room(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.").split(".")[0] if module.startswith(f"{package}.") else ""


def _floors(names: set[str], arrows: list[tuple[str, str]]) -> dict[str, int]:
    """Return for each room the length of the longest chain of imports below it; rooms in a cycle share a floor."""
    below = {name: {b for a, b in arrows if a == name} for name in names}
    floor = dict.fromkeys(names, 0)
    for _ in names:
        raised = {n: max((floor[b] + 1 for b in below[n] if not _reaches(below, b, n)), default=0) for n in names}
        for n in names:  # a cycle is above every import of its rooms
            raised[n] = max(raised[m] for m in names if m == n or (_reaches(below, n, m) and _reaches(below, m, n)))
        if raised == floor:
            break
        floor = raised
    return floor


def _reaches(below: dict[str, set[str]], start: str, goal: str) -> bool:
    pending, seen = [start], {start}
    while pending:
        at = pending.pop()
        if at == goal:
            return True
        new = below[at] - seen
        seen |= new
        pending += new
    return False


def homonyms(tree: Tree) -> dict[str, list[str]]:
    """Return class names that are defined in several files, lowering functions' rooms left out."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, nodes in tree.nodes.items():
        if "lowering" not in path.parts:
            for node in nodes:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(tree.root)))
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def name_tests(tree: Tree) -> list[str]:
    """Return comparisons of an op's name, or of an op with `OPS[...]`, outside the declarations and the backends."""
    found = []
    for path, nodes in tree.nodes.items():
        relative = path.relative_to(tree.root)
        if relative.parts[:2] == ("hal", "ops") or relative.parts[0] == "backends":
            continue
        for node in nodes:
            if isinstance(node, ast.Compare):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                if any(re.search(r"\bop(_?name)?\.name$|\bop_name$", s) for s in sides) or any(
                    "OPS[" in s for s in sides
                ):
                    found.append(f"{relative}:{node.lineno} {ast.unparse(node)}")
    return found


def private_rebuilds(tree: Tree) -> list[str]:
    """Return comprehensions and loops that map the values of a graph to their producers or users."""
    found = []
    for path, text in tree.files.items():
        for match in _PRODUCER_MAP.finditer(text):
            found.append(f"{path.relative_to(tree.root)}:{text.count(chr(10), 0, match.start()) + 1}")
    return found


def undocumented(tree: Tree, under: str = ".") -> tuple[list[str], int]:
    """Return public functions, methods and classes below a folder without a docstring, and the number of all public ones.

    What is inside of functions and private classes is not public. A method inherits the docstring of the method that it
    overrides, or of the protocol that its class implements.
    """
    classes = {n.name: n for nodes in tree.nodes.values() for n in nodes if isinstance(n, ast.ClassDef)}
    protocols = [p for p in map(_protocols_of, tree.nodes.values()) if p]
    missing, count = [], 0
    for path, parsed in tree.parsed.items():
        if path.is_relative_to(tree.root / under):
            for owner, node in _public(parsed):
                count += 1
                if ast.get_docstring(node) is None and not (
                    owner and node.name in _inherited_docstrings(owner, classes, protocols)
                ):
                    name = f"{owner.name}.{node.name}" if owner else node.name
                    missing.append(f"{path.relative_to(tree.root)}:{node.lineno} {name}")
    return missing, count


def _public(parsed: ast.Module) -> Iterator[tuple[ast.ClassDef | None, ast.FunctionDef | ast.ClassDef]]:
    """Return public functions and classes of a file, and public methods with their class."""
    pending: list[tuple[ast.ClassDef | None, ast.AST]] = [(None, parsed)]
    while pending:
        owner, parent = pending.pop()
        for node in ast.iter_child_nodes(parent):
            if (
                isinstance(node, ast.FunctionDef | ast.ClassDef)
                and not node.name.startswith("_")
                and not _repeats(node)
            ):
                yield owner, node
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                pending.append((node, node))
            elif not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
                pending.append((owner, node))


def _repeats(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Return whether this is an overload or a setter, which is documented at another place."""
    names = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name == "overload" or name.endswith(".setter") for name in names)


def _methods(owner: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")}


def _members(owner: ast.ClassDef) -> set[str]:
    """Return the names of methods and of attributes that the body of a class sets."""
    assigned = {t.id for n in owner.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    annotated = {n.target.id for n in owner.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    return set(_methods(owner)) | assigned | annotated


def _protocols_of(nodes: list[ast.AST]) -> list[ast.ClassDef]:
    """Return the protocols that a file declares."""
    return [n for n in nodes if isinstance(n, ast.ClassDef) and "Protocol" in map(ast.unparse, n.bases)]


def _inherited_docstrings(
    owner: ast.ClassDef, classes: dict[str, ast.ClassDef], protocols: list[list[ast.ClassDef]]
) -> set[str]:
    """Return the methods that the bases and protocols of a class document.

    A class that has all methods of a protocol, and these are several, implements it and its optional companions.
    """
    ancestors, pending = [owner], [owner]
    while pending:
        names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in pending.pop().bases]
        bases = [classes[name] for name in names if name in classes and classes[name] not in ancestors]
        ancestors += bases
        pending += bases
    members = {name for a in ancestors for name in _members(a)}
    for group in protocols:
        if any(len(_methods(p)) > 1 and set(_methods(p)) <= members for p in group):
            ancestors += [p for p in group if set(_methods(p)) <= members]
    return {name for a in ancestors[1:] for name, m in _methods(a).items() if ast.get_docstring(m) is not None}


def docstring_share(tree: Tree, under: str) -> float:
    """Return the share of public functions, methods and classes below a folder that have a docstring or inherit one."""
    missing, count = undocumented(tree, under)
    return 1 - len(missing) / max(1, count)
