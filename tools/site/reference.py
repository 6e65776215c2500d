"""Pages of the API reference, in reStructuredText for Sphinx's autodoc.

A name that several modules offer has its entry where it comes first; the others refer to it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from tools.site.areas import AREAS, Area


class Entry(NamedTuple):
    """A public name, its value, and the first public name of the same value."""

    name: str
    value: Any
    first: str


def pages() -> dict[str, str]:
    """Return the texts of all pages by name."""
    return {"index": _index()} | {area.page: _page(area, entries) for area, entries in divided().items()}


def _index() -> str:
    toctree = [".. toctree::", "   :maxdepth: 1", "", *(f"   {area.page}" for area in AREAS)]
    return "\n".join(["API reference", "=============", "", *_INTRODUCTION, "", *toctree, ""])


def divided() -> dict[Area, list[Entry]]:
    """Return the public names of each area."""
    first: dict[int, str] = {}
    return {area: list(_with_first(_names_of(area), first)) for area in AREAS}


def names(module: ModuleType) -> list[str]:
    """Return the public names of a module, sorted; without `__all__`, those that it defines itself."""
    if module.__name__ == "polyhal":
        return sorted({*module.__all__, *(name for name in dir(module) if not name.startswith("_"))})
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(n for n, v in vars(module).items() if not n.startswith("_") and _is_own(v, module))


def _is_own(value: Any, module: ModuleType) -> bool:
    if inspect.isclass(value) or inspect.isroutine(value):
        return bool(value.__module__ == module.__name__)
    is_import = inspect.ismodule(value) or type(value).__module__ in ("__future__", "typing", "types")
    return not is_import and getattr(value, "__module__", module.__name__) == module.__name__


def home(value: Any) -> str:
    """Return the module that defines a value; of an op, the module of its declaration; of a number, ''."""
    if inspect.ismodule(value):
        return value.__name__
    if hasattr(value, "op"):
        return str(getattr(value.op.reference, "__module__", "polyhal.hal.ops"))
    where = getattr(value, "__module__", None) or type(value).__module__
    return "" if where == "builtins" else str(where)


_OF_NUMPY = "polyhal.hal.ops.pointwise"
"""The folder that declares ops whose reference is a function of NumPy."""
_INTRODUCTION = (
    "Every public name, from its docstring. Functions with several names have one entry; the others refer to it.",
    "Shapes are written as (N, C, H, W), and ``...`` stands for any axes. Errors are below ``polyhal.errors``.",
)
_MANY = 60
"""Minimum number of names of a module for which its page has a heading for each file that defines some of them."""


def area_of(value: Any) -> Area:
    """Return the page of a name of `polyhal`. Raises LookupError if no area has its module."""
    where = home(value).replace("numpy", _OF_NUMPY)
    for area in AREAS:
        if any(where == h or (h and where.startswith(f"{h}.")) for h in area.homes):
            return area
    raise LookupError(f"no page of the reference has the definitions of {where}: add it to tools/site/areas.py")


def _names_of(area: Area) -> Iterator[tuple[str, Any]]:
    top = importlib.import_module("polyhal")
    if area.homes:
        for name in names(top):
            value = getattr(top, name)
            if not inspect.ismodule(value) and area_of(value) is area:
                yield f"polyhal.{name}", value
    for module in map(importlib.import_module, area.modules):
        for name in names(module):
            value = getattr(module, name)
            if not inspect.ismodule(value):
                yield f"{module.__name__}.{name}", value


def _with_first(found: Iterable[tuple[str, Any]], first: dict[int, str]) -> Iterator[Entry]:
    for name, value in found:
        is_definition = inspect.isroutine(value) or inspect.isclass(value)
        yield Entry(name, value, first.setdefault(id(value), name) if is_definition else name)


def _page(area: Area, entries: list[Entry]) -> str:
    modules = [m for m in ("polyhal", *area.modules) if m in area.modules or (m == "polyhal" and area.homes)]
    lines = [area.title, "=" * len(area.title), ""]
    for module in modules:
        own = [e for e in entries if e.name.rpartition(".")[0] == module]
        if module != "polyhal":
            if len(modules) > 1:
                lines += [module, "-" * len(module), ""]
            lines += [f".. automodule:: {module}", ""]
        lines += _entries(module, own)
    return "\n".join(lines) + "\n"


def _entries(module: str, entries: list[Entry]) -> list[str]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        group = home(entry.value).rpartition(".")[2] if len(entries) >= _MANY and module != "polyhal" else ""
        groups.setdefault(group, []).append(entry)
    lines = []
    for group, members in sorted(groups.items()):
        if group:
            title = group.replace("_", " ").capitalize()
            lines += [title, "~" * len(title), ""]
        lines += _summary(members)
        for entry in members:
            lines += _entry(entry)
    return lines


def _summary(entries: list[Entry]) -> list[str]:
    """Return links to the entries, in one line."""
    shown = [e for e in entries if e.first == e.name and not _is_constant(e.value)]
    if len(shown) < _FEW:
        return []
    return [", ".join(f":py:obj:`{e.name.rpartition('.')[2]} <{e.name}>`" for e in shown), ""]


_FEW = 4


def _is_constant(value: Any) -> bool:
    return not (inspect.isroutine(value) or inspect.isclass(value))


def _entry(entry: Entry) -> list[str]:
    if entry.first != entry.name:
        kind = "class" if inspect.isclass(entry.value) else "function"
        return [*_directive(kind, entry.name), "", f"   Same as :py:obj:`{entry.first}`.", ""]
    if inspect.isclass(entry.value):
        inherited = ["   :inherited-members: object"] if entry.name == "polyhal.Tensor" else []
        return [f".. autoclass:: {entry.name}", "   :members:", *inherited, ""]
    if _is_constant(entry.value):
        return [*_directive("data", entry.name), f"   :type: {type(entry.value).__name__}", ""]
    return [f".. autofunction:: {entry.name}", ""]


def _directive(kind: str, name: str) -> list[str]:
    module, _, last = name.rpartition(".")
    return [f".. py:{kind}:: {last}", f"   :module: {module}"]
