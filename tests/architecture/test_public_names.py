"""Public names are listed in `__all__` and visible to static analysis, as type checkers and editors require."""

from __future__ import annotations

import ast
import importlib
import types
from pathlib import Path

import pytest
from public_modules import APPLICATIONS, LIBRARY

import polyhal

FRONTEND = Path(__file__).parents[2] / "frontend"
WITH_HELPERS = {
    "polyhal",
    "polyhal.cli.chosen_devices",
    "polyhal.cli.completion",
    "polyhal.cli.display",
    "polyhal.cli.progress_bar",
    "polyhal.cli.reporting",
    "polyhal.cli.stop_request",
    "polyhal.fft",
    "polyhal.nn.init",
    "polyhal.profiler",
    "polyhal.random",
    "polyhal.utils.curves",
    "polyhal.utils.metrics",
    "polyhal.utils.progress",
}
"""Modules that define functions, whose helpers are not listed."""
HELPERS = {"Any", "TYPE_CHECKING", "annotations"}
BUILTINS = {"bool", "float", "int"}
"""Dtypes that a star import must not put over Python's own types."""


def _bound(path: Path) -> set[str]:
    """Return the names that the statements of a module bind, imports for type checkers included, without running it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_all_names_of_the_package_are_listed_and_bound_where_type_checkers_look() -> None:
    listed = set(polyhal.__all__)
    assert len(listed) == len(polyhal.__all__)
    found = _bound(FRONTEND / "__init__.pyi") | _bound(FRONTEND / "functions.pyi")
    assert listed - found == set(), "listed, and bound by no statement"
    public = {n for n in dir(polyhal) if not n.startswith("_")}
    assert public - listed == BUILTINS, "public, and not listed"
    for name in public:
        getattr(polyhal, name)


def test_nothing_else_is_listed_by_dir() -> None:
    assert not {"LAZY_NAMES", "ModuleType", "binding", "einops_backend", "importlib"} & set(dir(polyhal))
    from polyhal.functions import __all__ as functions
    from polyhal.lazy_names import LAZY_NAMES

    assert {*functions, *LAZY_NAMES} <= set(polyhal.__all__)


@pytest.mark.parametrize("package", [name for name in (*LIBRARY, *APPLICATIONS) if name not in WITH_HELPERS])
def test_packages_list_their_public_names(package: str) -> None:
    module = importlib.import_module(package)
    listed = set(module.__all__)
    offered = {
        n
        for n in dir(module)
        if not n.startswith("_") and n not in HELPERS and not isinstance(getattr(module, n), types.ModuleType)
    }
    assert offered - listed == set()
    for name in listed:
        getattr(module, name)
