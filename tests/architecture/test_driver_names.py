"""Drivers are known by name in one file per backend, the one that declares workarounds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from survey import this_tree

ROOT = Path(__file__).parents[2]
NAMES = re.compile(
    r"(?i:\b(pocl|portable computing language|oclgrind|intel|llvmpipe|lavapipe|softpipe|swiftshader|rusticl|mesa)\b)"
    r"|\bPOCL_|__NV_CL|__INTEL|__AMD"
)
VENDORS = re.compile(r"(?i:\b(nvidia|amd|apple|qualcomm|adreno|mali)\b)")
ALLOWED = {
    "backends/opencl_c/quirks.py": "declares the workarounds",
    "backends/wgpu/quirks.py": "declares the workarounds",
    "backends/opencl/icd.py": "registers a driver that comes as a Python package, before any driver is loaded",
    "backends/opencl/pocl_affinity.py": "sets a variable that one driver reads when it is loaded, before there are devices",
    "backends/opencl/install_hints.py": "tells people which driver to install",
    "backends/opencl/mesa_hints.py": "tells people what a driver needs besides being installed",
    "backends/opencl/__init__.py": "names the environment variables that `polyhal doctor` lists",
    "backends/wgpu/discovery.py": "tells people which driver to install",
    "backends/wgpu/capabilities.py": "names the vendors of PCI ids",
}
ALLOWED_TEXTS = {
    **ALLOWED,
    **{
        path.relative_to(ROOT).as_posix(): "drives the devices of one vendor"
        for path in (ROOT / "backends" / "cuda").glob("*.py")
    },
    "hal/core/plugins/software_renderers.py": "distinguishes software renderers from graphics cards, for every backend",
    "frontend/distributed/threads.py": "sets variables that drivers for processors read when they are loaded",
    "hal/system/discovery/next_step.py": "tells people which driver to install",
    "hal/system/discovery/device_list.py": "gives examples of names of devices",
    "backends/opencl/peers/cuda_copy.py": "tells people how to look at their cards",
    "apps/reports/privacy.py": "knows the accounts that images of systems come with, one of which is called like a vendor",
}
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("backends", "shaders")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".cl", ".h", ".wgsl")
)


def names(text: str) -> list[str]:
    """Return the lines of a source that name a driver."""
    return [line.strip() for line in text.splitlines() if NAMES.search(line)]


def test_drivers_are_not_known_by_name() -> None:
    naming = {file: names((ROOT / file).read_text(encoding="utf-8")) for file in FILES if file not in ALLOWED}
    assert len(naming) > 400
    assert {file: lines for file, lines in naming.items() if lines} == {}, "declare a quirk instead (docs/quirks.md)"


def named_in_code(nodes: list[ast.AST]) -> list[str]:
    """Return string constants among nodes of a Python source, without docstrings, that name a driver or a vendor."""
    documentation = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    texts = [
        n.value
        for n in nodes
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in documentation
    ]
    return [t for t in texts if NAMES.search(t) or VENDORS.search(t)]


def test_no_code_tests_the_name_of_a_driver_or_vendor() -> None:
    naming = {
        path.relative_to(ROOT).as_posix(): texts
        for path, nodes in this_tree().nodes.items()
        if not path.is_relative_to(ROOT / "shaders") and (texts := named_in_code(nodes))
    }
    assert {file: texts for file, texts in naming.items() if file not in ALLOWED_TEXTS} == {}, "declare a quirk instead"


@pytest.mark.parametrize("file", ALLOWED)
def test_exceptions_are_needed(file: str) -> None:
    assert names((ROOT / file).read_text(encoding="utf-8")), f"{file} names no driver any more: remove it from the list"


def test_names_are_found() -> None:
    assert names('if "oclgrind" in platform.lower():\n    pass') == ['if "oclgrind" in platform.lower():']
    assert names("#ifdef POCL_DEVICE_ADDRESS_BITS") == ["#ifdef POCL_DEVICE_ADDRESS_BITS"]
    assert names("import pocl_affinity  # intelligent") == []
    code = '"""For NVIDIA."""\nfast = "NVIDIA" in info.vendor  # and AMD'
    assert named_in_code(list(ast.walk(ast.parse(code)))) == ["NVIDIA"]
