"""The CUDA plug-in where there is no CUDA: it installs, keeps to the public contract, and says what is missing."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from polyhal.backends.common.codegen.expressions import EXPRESSIONS
from polyhal.backends.common.codegen.templating import SourceFolder

PLUGIN = Path(__file__).parents[2] / "examples" / "plugins" / "cupy"
PACKAGE = PLUGIN / "src" / "polyhal_cupy"
KERNELS = sorted(p.relative_to(PACKAGE / "kernels").as_posix() for p in (PACKAGE / "kernels").rglob("*.cu"))
_WORDS = frozenset({"K", "select", "truth"})
"""Words of the expression language that are no functions."""
_CUDA = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "exp",
    "exp2", "expm1", "fabs", "floor", "fmod", "hypot", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2",
    "normcdf", "pow", "rint", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
})  # fmt: skip
"""Functions that CUDA C++ has for float and double."""


def test_everything_is_installed(cupy_plugin: Any) -> None:
    """Sources in CUDA C are package data, which is forgotten easily."""
    shipped = {p.relative_to(PACKAGE) for p in PACKAGE.rglob("*") if p.suffix in (".py", ".cu", ".cuh")}
    installed = cupy_plugin.site / "polyhal_cupy"
    assert {p.relative_to(installed) for p in installed.rglob("*") if p.suffix in (".py", ".cu", ".cuh")} == shipped
    assert len(KERNELS) >= 20


def test_generated_code_calls_functions_of_its_kernel() -> None:
    """A compiler would say so, but there is none where CuPy is not installed."""
    generator = (PACKAGE / "lowering" / "pointwise" / "elementwise.py").read_text(encoding="utf-8")
    kernel = (PACKAGE / "kernels" / "pointwise" / "elementwise.cu").read_text(encoding="utf-8")
    access = re.compile(r"\b((?:load|store)_\w+)\(")
    defined = {name for name in access.findall(kernel) if f" {name}(const T *" in kernel or f" {name}(T *" in kernel}
    assert set(access.findall(generator)) == defined != set()


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_file_is_complete(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every header that it includes is there, and it holds a kernel."""
    monkeypatch.syspath_prepend(str(PACKAGE.parent))
    text = SourceFolder("polyhal_cupy.kernels").assemble(name, {})
    assert "#include" not in text
    assert "__global__" in text


def test_every_expression_has_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is new in the shared tables must be spelt in CUDA C too."""
    monkeypatch.syspath_prepend(str(PACKAGE.parent))
    dialect = importlib.import_module("polyhal_cupy.dialect").CudaDialect()
    library = (PACKAGE / "kernels" / "lib/functions.cuh").read_text(encoding="utf-8")
    ours = set(re.findall(r"inline \w+ (\w+)\(", library))
    templates = [t for e in EXPRESSIONS.values() for t in e.templates.values()]
    called = {w for t in templates for w in re.findall(r"([A-Za-z_]\w*)\(", t)} - _WORDS
    assert {dialect.function(w, "float") for w in called} <= ours | _CUDA


def test_imports_only_the_public_contract() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.split(".")[0] == "polyhal":
                    assert name.startswith(("polyhal.hal", "polyhal.backends.common")), f"{path.name} imports {name}"


def test_discovery_does_not_import_cupy(cupy_plugin: Any) -> None:
    code = "import sys, polyhal_cupy; polyhal_cupy.polyhal_backends(); sys.exit('cupy' in sys.modules)"
    assert cupy_plugin.run("-c", code).returncode == 0


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_doctor_says_what_to_install(cupy_plugin: Any) -> None:
    code = """
from polyhal.hal.diagnostics.doctor import examine
for p in examine(tests=False).problems:
    if "cuda" in p.source:
        print(p.reason, "|", p.fix)
"""
    done = cupy_plugin.run("-c", code)
    assert "CuPy is not installed | pip install 'polyhal-cupy[cuda13]'" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_asking_for_the_device_fails_loudly(cupy_plugin: Any) -> None:
    done = cupy_plugin.run("-c", "import polyhal; polyhal.Device('cuda')")
    assert done.returncode != 0
    assert "DeviceUnavailableError" in done.stderr
    assert "CuPy is not installed" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_its_own_tests_are_skipped_with_the_reason(cupy_plugin: Any) -> None:
    done = cupy_plugin.run("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist", "tests")
    assert "CuPy is not installed" in done.stdout, done.stdout + done.stderr
    assert " failed" not in done.stdout


def test_python_of_this_run_is_supported() -> None:
    text = (PLUGIN / "pyproject.toml").read_text(encoding="utf-8")
    (least,) = re.findall(r'requires-python = ">=3\.(\d+)"', text)
    assert sys.version_info >= (3, int(least))
