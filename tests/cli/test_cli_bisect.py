"""`polyhal bisect` runs a script twice in subprocesses, and reports the op at which the runs diverge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Command

WRONG = """
import os, sys
import faulty_kernels
import polyhal as ph
assert sys.argv[1] == os.environ["POLYHAL_DEVICE"]
print("this is not in the way")
wrong = os.environ["POLYHAL_DEVICE"] == "numpy:no_f64"
device = faulty_kernels.opened(faulty_kernels.WrongResult()) if wrong else ph.Device()
x = ph.randn((2, 3), device=device) * 2.0
ph.nn.functional.softmax(x, -1)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def test_the_op_and_the_line_of_a_wrong_kernel(polyhal: Command, script: Path) -> None:
    script.write_text(WRONG)
    done = polyhal("bisect", script, "--devices", "numpy:no_f64,numpy", "--", "{device}")
    assert done.code == 1
    assert "the results diverge at op 3: softmax -> float32[2, 3]" in done.err
    assert f"at {script}:10: ph.nn.functional.softmax(x, -1)" in done.out
    assert "numpy:no_f64: 6 of 6 elements of 'out' are wrong" in done.out


def test_two_equal_runs(polyhal: Command, script: Path) -> None:
    script.write_text("import polyhal as ph\nph.randn((2, 3)).exp()\n")
    done = polyhal("bisect", script, "--devices", "numpy", "--twice", "--json")
    found = json.loads(done.out)
    assert (found["agree"], found["devices"], found["difference"]) == (True, ["numpy", "numpy"], [])
    done = polyhal("bisect", script, "--devices", "numpy", "--twice")
    assert done.code == 0, done.err
    assert "ops ran twice on numpy, with the same bits" in done.out


def test_a_script_that_fails_says_so(polyhal: Command, script: Path) -> None:
    script.write_text("raise RuntimeError('no data')")
    done = polyhal("bisect", script, "--devices", "numpy", "--twice")
    assert done.code == 1
    assert "program.py fails on numpy:" in done.err
    assert "RuntimeError: no data" in done.err


def test_two_devices_are_needed(polyhal: Command, script: Path) -> None:
    script.write_text("")
    done = polyhal("bisect", script, "--devices", "numpy")
    assert done.code == 2
    assert "'numpy' names 1 device; expected two devices, as in opencl:0,numpy" in done.err
