"""Plug-ins for compilers of graphs: their size and imports, and, where a compiler is installed, the plug-in's tests."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from conftest import PLUGINS, install  # type: ignore[attr-defined]

COMPILERS = {"xla": "jax", "openvino": "openvino"}
"""The compiler's package of each plug-in."""
LINES = 800


def _sources(name: str) -> list[Path]:
    return sorted((PLUGINS / name / "src" / f"polyhal_{name}").glob("*.py"))


@pytest.fixture(scope="module", params=COMPILERS)
def compiler_plugin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    name, package = request.param, COMPILERS[request.param]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return install(name, tmp_path_factory.mktemp(name))


@pytest.mark.parametrize("name", COMPILERS)
def test_backend_is_short(name: str) -> None:
    """It is an example to read."""
    assert sum(len(p.read_text(encoding="utf-8").splitlines()) for p in _sources(name)) <= LINES


@pytest.mark.parametrize("name", COMPILERS)
def test_imports_only_the_public_contract(name: str) -> None:
    for path in _sources(name):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for imported in names:
                if imported.split(".")[0] == "polyhal":
                    allowed = imported.startswith(("polyhal.hal", "polyhal.backends.common"))
                    internal = imported.startswith(("polyhal.hal.compile", "polyhal.hal.core", "polyhal.hal.ops"))
                    assert allowed, f"{path.name} imports {imported}"
                    assert not internal, f"{path.name} imports {imported}"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("tests/test_steps.py",), ("tests/test_conformance.py", "-k", "graphs")])
def test_passes_its_tests(compiler_plugin: Any, arguments: tuple[str, ...]) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--polyhal-small", *arguments)
    done = compiler_plugin.run("-m", "pytest", *options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
