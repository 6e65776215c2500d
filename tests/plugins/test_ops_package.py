"""The package of ops to copy: once pip has installed it, its ops are found, pass the kit, and are reported by `doctor`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from devices import TEST_DEVICES

PACKAGE = Path(__file__).parents[2] / "examples" / "plugins" / "ops"


def test_passes_its_own_tests(ops_package: Any) -> None:
    """As its author would run them: on NumPy, which runs decompositions, and with its own kernels."""
    device = ",".join(["numpy", *(d for d in TEST_DEVICES if d.startswith("opencl"))][:2])
    done = ops_package.run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--polyhal-small",
        f"--polyhal-device={device}",
        "tests",
    )
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed.group(1)) >= 25 * (device.count(",") + 1)


def test_finding_the_ops_imports_no_declaration(ops_package: Any) -> None:
    code = "import sys, polyhal; dir(polyhal.ops); sys.exit('polyhal_gates.declarations' in sys.modules)"
    assert ops_package.run("-c", code).returncode == 0


def test_doctor_and_the_kit_of_a_device_list_the_ops(ops_package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_DISABLE", "opencl,wgpu")
    code = """
import json
from polyhal import Device
from polyhal.hal.system.diagnostics.doctor import examine
from polyhal.hal.testing import Scope, cases
report = examine(tests=False)
print(json.dumps([report.ops, report.entry_points, [c.id for c in cases(Device("numpy"), Scope())]]))
"""
    done = ops_package.run("-c", code)
    assert done.returncode == 0, done.stderr
    ops, points, cases = json.loads(done.stdout)
    assert ops == {"softcap": "polyhal-gates 0.1.0", "swiglu": "polyhal-gates 0.1.0"}
    assert ["gates = polyhal_gates", "polyhal-gates"] in points
    assert {f"forward/{op}/float32" for op in ("softcap", "softmax", "swiglu")} <= set(cases)


def test_the_kit_runs_one_op_alone(ops_package: Any) -> None:
    kit = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "tests/test_conformance.py")
    one = ops_package.run(*kit, "--polyhal-ops=swiglu").stdout
    assert "numpy-forward/swiglu/float32" in one
    assert "softcap" not in one
    unknown = ops_package.run(*kit, "--polyhal-ops=swigl")
    assert "'swigl' is neither an op nor an installed package with ops" in unknown.stdout + unknown.stderr


def test_the_page_shows_the_declarations() -> None:
    """The blocks of the page are parts of the files."""
    page = (PACKAGE.parents[2] / "docs" / "adding-an-op.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+ (\S+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    for name, text in blocks:
        assert text in (PACKAGE / name).read_text(encoding="utf-8"), name
