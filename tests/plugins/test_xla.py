"""The plug-in for XLA: its size and imports, and, where JAX is installed, its own tests and the kit's cases of graphs."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from conftest import install  # type: ignore[attr-defined]

PLUGIN = Path(__file__).parents[2] / "examples" / "plugins" / "xla"
PACKAGE = PLUGIN / "src" / "polyhal_xla"
HAS_JAX = importlib.util.find_spec("jax") is not None


@pytest.fixture(scope="module")
def xla_plugin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return install("xla", tmp_path_factory.mktemp("xla"))


def test_backend_is_short() -> None:
    """It is an example to read."""
    assert sum(len(p.read_text(encoding="utf-8").splitlines()) for p in PACKAGE.glob("*.py")) <= 750


def test_imports_only_the_public_contract() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.split(".")[0] == "polyhal":
                    assert name.startswith(("polyhal.hal", "polyhal.backends.common")), f"{path.name} imports {name}"
                    assert not name.startswith(("polyhal.hal.compile", "polyhal.hal.core", "polyhal.hal.ops"))


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.parametrize("arguments", [("tests/test_steps.py",), ("tests/test_conformance.py", "-k", "graphs")])
def test_passes_its_tests(xla_plugin: Any, arguments: tuple[str, ...]) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--polyhal-small", *arguments)
    done = xla_plugin.run("-m", "pytest", *options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
