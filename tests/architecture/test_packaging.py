"""The installed files, and the cost of importing them."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import setuptools
from survey import this_tree

ROOT = Path(__file__).parents[2]


def test_every_file_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules belong to packages that setup.py finds; kernels, tables and stubs match the patterns of data files."""
    declared: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", declared.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = ["*.py", *project["tool"]["setuptools"]["package-data"]["*"]]
    missing = []
    for root, folder in declared["package_dir"].items():
        for file in (ROOT / folder).rglob("*"):
            package = ".".join((root, *file.parent.relative_to(ROOT / folder).parts))
            if not file.is_file() or file.suffix == ".pyc":
                continue
            if package not in declared["packages"] or not any(file.match(p) for p in patterns):
                missing.append(str(file.relative_to(ROOT)))
    assert missing == []
    assert {"polyhal", "polyhal.hal.ops.nn", "polyhal.shaders.wgsl.lib", "polyhal_autoload"} <= set(
        declared["packages"]
    )


def test_links_of_the_description_are_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", declared.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    targets = re.findall(r"\]\(([^)\s]+)\)", declared["long_description"])
    assert [t for t in targets if not t.startswith(("https://", "#"))] == []
    files = [t.removeprefix(f"{source}/").split("/main/")[1].partition("#")[0] for t in targets if t.startswith(source)]
    assert len(files) > 20
    assert [f for f in files if not (ROOT / f).exists()] == []
    assert f"({source}/raw/main/docs/pictures/simulator.png)" in declared["long_description"]


def test_the_library_imports_no_folder_of_the_checkout() -> None:
    """Tools, tests and benchmarks are not installed."""
    checkout = {p.name for p in ROOT.iterdir() if p.is_dir()} - {"polyhal_autoload"}
    tree = this_tree()
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, nodes in tree.nodes.items()
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        and checkout & {name.partition(".")[0] for name in _imported(node)}
    ]
    assert found == []


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if not node.level else []


def test_entry_points_load() -> None:
    ours = [p for p in entry_points(group="polyhal.backends") if p.value.startswith("polyhal.")]
    assert {p.name for p in ours} >= {"numpy", "opencl", "null"}
    for point in ours:
        assert hasattr(point.load(), "polyhal_backends")


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_opens_no_device_and_no_driver() -> None:
    code = """
import sys, polyhal, polyhal.nn, polyhal.optim
from polyhal.hal.system.discovery import registry
heavy = [m for m in ("pyopencl", "wgpu", "torch", "matplotlib", "sklearn", "pytest", "hypothesis") if m in sys.modules]
print(heavy, registry._registry.cache_info().currsize, [m for m in sys.modules if m.startswith("polyhal.backends")])
"""
    assert _run(code) == "[] 0 []"


def test_listing_backends_imports_no_driver() -> None:
    code = """
import sys
from polyhal.hal.system.discovery.registry import registry
names = sorted(registry().backends)
print("pyopencl" in sys.modules or "wgpu" in sys.modules, {"numpy", "opencl"} <= set(names))
"""
    assert _run(code) == "False True"


def test_the_numpy_device_needs_no_driver() -> None:
    code = "import sys, polyhal; polyhal.ones((2,), device='numpy') + 1; print('pyopencl' in sys.modules)"
    assert _run(code) == "False"


LOADED_LATER = (
    "polyhal.data",
    "polyhal.graphs",
    "polyhal.hal.compile.capture.recorder",
    "polyhal.hal.system.communicators",
    "polyhal.hal.system.diagnostics",
    "polyhal.hal.system.discovery",
    "polyhal.hal.compile.ir",
    "polyhal.hal.core.kernels",
    "polyhal.hal.compile.op_plugins",
    "polyhal.hal.compile.passes",
    "polyhal.hal.compile.planning.planner",
    "polyhal.hal.core.plugins",
    "polyhal.hal.system.reference",
    "polyhal.hal.compile.scheduler",
    "polyhal.models",
    "polyhal.nn",
    "polyhal.optim",
    "polyhal.serialize",
    "polyhal.steps",
    "polyhal.text",
    "polyhal.training",
    "bz2",
    "importlib.metadata",
    "importlib.resources",
    "json",
    "numpy.random",
    "platformdirs",
    "safetensors",
    "shutil",
    "tempfile",
    "zipfile",
)
"""Modules that `import polyhal` must not load: programs that do not use them should not wait for them."""


def _modules_after(code: str) -> set[str]:
    return set(_run(f"import sys; {code}; print(*sys.modules)").split())


def test_importing_loads_only_modules_of_eager_programs() -> None:
    before, after = _modules_after("import numpy, ml_dtypes"), _modules_after("import polyhal")
    assert [name for name in LOADED_LATER if name in after - before] == []


def test_importing_reads_few_signatures() -> None:
    """`inspect.signature` is slow: arguments of ops' functions are read by `polyhal.hal.ops.arguments`."""
    code = """
import inspect
from unittest.mock import patch
with patch.object(inspect, "signature", wraps=inspect.signature) as signature:
    import polyhal
print(signature.call_count)
"""
    assert int(_run(code)) < 120


def test_running_an_op_loads_nothing_of_captured_steps() -> None:
    later = (
        "polyhal.graphs",
        "polyhal.hal.compile.capture.recorder",
        "polyhal.hal.compile.passes",
        "polyhal.hal.compile.scheduler",
        "polyhal.steps",
    )
    after = _modules_after("import polyhal; (polyhal.ones((2,), device='numpy') + 1).softmax(0)")
    assert [name for name in later if name in after] == []


def test_every_public_name_is_found_when_it_is_first_named() -> None:
    code = """
import polyhal
names = [n for n in polyhal.__all__ if not hasattr(polyhal, n) or n not in dir(polyhal)]
from polyhal import *
from polyhal.steps.jit import Jitted
print(names, isinstance(polyhal.jit(lambda x: x), Jitted), jit is polyhal.jit, callable(polyhal.fit), callable(capture))
"""
    assert _run(code) == "[] True True True True"


def test_a_star_import_needs_no_applications() -> None:
    code = """
import sys
sys.modules["polyhal.models"] = sys.modules["polyhal.text"] = None
from polyhal import *
print(callable(jit), "models" in globals(), "text" in globals())
"""
    assert _run(code) == "True False False"


def test_an_unknown_name_is_an_attribute_error() -> None:
    code = """
import polyhal
try:
    polyhal.no_such_name
except AttributeError as error:
    print(error)
"""
    assert _run(code) == "module 'polyhal' has no attribute 'no_such_name'"
