"""What is installed, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"frontend": "polyhal", "hal": "polyhal.hal", "backends": "polyhal.backends", "shaders": "polyhal.shaders"}


def _project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _packages() -> set[str]:
    found = set()
    for folder, name in FOLDERS.items():
        for file in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join([name, *file.parent.relative_to(ROOT / folder).parts]))
    return found


def test_every_package_is_listed() -> None:
    setuptools = _project()["tool"]["setuptools"]  # type: ignore[index]
    assert set(setuptools["packages"]) == _packages()
    assert setuptools["package-dir"] == {v: k for k, v in FOLDERS.items()}


def test_every_data_file_is_listed() -> None:
    patterns = _project()["tool"]["setuptools"]["package-data"]  # type: ignore[index]
    for folder, name in FOLDERS.items():
        for file in (ROOT / folder).rglob("*"):
            if not file.is_file() or file.suffix in (".py", ".pyc"):
                continue
            package = ".".join([name, *file.parent.relative_to(ROOT / folder).parts])
            assert any(file.match(p) for p in patterns.get(package, [])), f"{file.relative_to(ROOT)} is not installed"


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
from polyhal.hal.discovery import registry
heavy = [m for m in ("pyopencl", "wgpu", "torch", "matplotlib", "sklearn", "pytest", "hypothesis") if m in sys.modules]
print(heavy, registry._registry.cache_info().currsize, [m for m in sys.modules if m.startswith("polyhal.backends")])
"""
    assert _run(code) == "[] 0 []"


def test_listing_backends_imports_no_driver() -> None:
    code = """
import sys
from polyhal.hal.discovery.registry import registry
names = sorted(registry().backends)
print("pyopencl" in sys.modules or "wgpu" in sys.modules, {"numpy", "opencl"} <= set(names))
"""
    assert _run(code) == "False True"


def test_the_numpy_device_needs_no_driver() -> None:
    code = "import sys, polyhal; polyhal.ones((2,), device='numpy') + 1; print('pyopencl' in sys.modules)"
    assert _run(code) == "False"
