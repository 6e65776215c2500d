"""The CUDA plug-in where there is no CUDA: it passes the kit on its stand-in for CuPy, and says what is missing."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = Path(__file__).parents[2] / "examples" / "plugins" / "cupy"
PACKAGE = PLUGIN / "src" / "polyhal_cupy"


def test_backend_is_short() -> None:
    """It is an example to read."""
    assert sum(len(p.read_text(encoding="utf-8").splitlines()) for p in PACKAGE.glob("*.py")) <= 900


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
from polyhal.hal.system.diagnostics.doctor import examine
for p in examine(tests=False).problems:
    if "cupy" in p.source:
        print(p.reason, "|", p.fix)
"""
    done = cupy_plugin.run("-c", code)
    assert "CuPy is not installed | pip install 'polyhal-cupy[cuda13]'" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_asking_for_the_device_fails_loudly(cupy_plugin: Any) -> None:
    done = cupy_plugin.run("-c", "import polyhal; polyhal.Device('cupy')")
    assert done.returncode != 0
    assert "DeviceUnavailableError" in done.stderr
    assert "CuPy is not installed" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
@pytest.mark.parametrize(
    ("cases", "calls"), [("contract", 0), pytest.param("contract or forward", 1630, marks=pytest.mark.slow)]
)
def test_passes_the_conformance_kit_on_the_stand_in(
    cupy_plugin: Any, cases: str, calls: int, kit_sample: list[str], pytestconfig: pytest.Config
) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--polyhal-small", *kit_sample, "-k", cases)
    done = cupy_plugin.run("-m", "pytest", *options, "tests/test_conformance.py")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed.group(1)) >= 70 + calls // pytestconfig.getoption("polyhal_sample")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_passes_its_own_tests_on_the_stand_in(cupy_plugin: Any) -> None:
    files = ("tests/test_cuda.py", "tests/test_nccl.py", "tests/test_peers.py")
    done = cupy_plugin.run("-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", *files)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "CuPy is not installed: NumPy stands in for it" in done.stdout


def test_python_of_this_run_is_supported() -> None:
    text = (PLUGIN / "pyproject.toml").read_text(encoding="utf-8")
    (least,) = re.findall(r'requires-python = ">=3\.(\d+)"', text)
    assert sys.version_info >= (3, int(least))
