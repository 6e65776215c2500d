"""`polyhal trace` runs a program, and prints each op with its launches, bytes and time."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from polyhal import get_default_device, set_default_device
from polyhal.hal.errors import ShapeError

from .conftest import Command

PROGRAM = """
import sys
import polyhal as ph
x = ph.ones((4, 8), requires_grad=True)
y = x.softmax(-1)
y.sum().backward()
step = ph.jit(lambda v: (v * 2.0 + 1.0).sum())
for _ in range(3):
    step(ph.ones((3, 5)))
print("output", sys.argv[1])
sys.exit(4)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("default", [None, "numpy:no_f64"])
def test_the_process_is_left_as_it_was(
    polyhal: Command, script: Path, default: str | None, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: set_default_device(None))
    set_default_device(default)

    def state() -> tuple[object, ...]:
        return list(sys.argv), list(sys.path), os.environ.get("POLYHAL_DEVICE"), get_default_device().name

    before = state()
    assert polyhal("trace", script, "--device", "numpy", "--", "x").code == 4
    assert state() == before


def test_each_op_with_its_line_and_the_output_of_the_program(polyhal: Command, script: Path) -> None:
    done = polyhal("trace", script, "--device", "numpy", "--", "of the program")
    assert done.code == 4
    assert done.out == "output of the program\n"
    line = next(x for x in done.err.splitlines() if "softmax(float32[4, 8])" in x)
    # A tensor of 4 times 8 elements of 4 bytes is read, and one is written.
    assert re.fullmatch(
        r" *[\d.]+ [mu]s +- +256 B  softmax\(float32\[4, 8\]\) -> float32\[4, 8\]  program.py:5", line
    ), line
    gradient = next(x for x in done.err.splitlines() if "gradient of softmax" in x)
    assert "program.py:5, gradient of softmax" in gradient


def test_launches_are_counted_on_devices_with_timestamps(polyhal: Command, script: Path) -> None:
    done = polyhal("trace", script, "--device", "sim:teaching", "--only", "softmax", "--", "x")
    lines = [x for x in done.err.splitlines() if "softmax(float32[4, 8])" in x]
    assert len(lines) == 1
    assert "1 launch " in lines[0]


def test_captured_steps_run_as_optimized_unless_eager(polyhal: Command, script: Path) -> None:
    optimized = polyhal("trace", script, "--device", "sim:teaching", "--", "x").err
    eager = polyhal("trace", script, "--device", "sim:teaching", "--eager", "--", "x").err
    multiplied = "multiply(float32[3, 5], 2.0)"
    assert eager.count(multiplied) == 3
    assert optimized.count(multiplied) == 1  # by the first call, which is not captured
    assert optimized.count("fused") > eager.count("fused")


def test_the_summary_adds_up_all_ops(polyhal: Command, script: Path) -> None:
    done = polyhal("trace", script, "--device", "numpy", "--limit", "1", "--", "x")
    shown, _, summary = done.err.partition("\n\n")
    more = re.search(r"\.\.\. and (\d+) ops more \(--limit\)", shown)
    assert more
    first, *rest = summary.splitlines()
    assert f"all {int(more[1]) + 1} ops" in first
    assert sum(int(m) for m in re.findall(r"(\d+) calls? of ", "\n".join(rest))) == int(more[1]) + 1


def test_an_error_of_the_program_is_reported_after_its_ops(polyhal: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import polyhal as ph\nph.ones(3) @ ph.ones(4)\n")
    done = polyhal("trace", tmp_path / "bad.py", "--device", "numpy")
    assert done.code != 0
    assert "Traceback" not in done.err
    assert "bad.py:2: [matmul]" in " ".join(done.err.split())


@pytest.mark.parametrize("command", ["profile", "trace"])
def test_an_error_of_polyhal_is_raised_for_debugging(
    polyhal: Command, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bad.py"
    program.write_text("import polyhal as ph\nph.ones((2, 3)) @ ph.ones((2, 3))\n")
    assert re.search(r"bad.py:2: \[matmul\]", polyhal(command, program, "--device", "numpy").err)
    monkeypatch.setenv("POLYHAL_DEBUG", "1")
    with pytest.raises(ShapeError, match="matmul"):
        polyhal(command, program, "--device", "numpy")


def test_a_program_that_is_not_there(polyhal: Command) -> None:
    done = polyhal("trace", "missing.py")
    assert done.code == 2
    assert "missing.py" in done.err


@pytest.mark.parametrize(("last", "code"), [("raise ValueError('no')", 1), ("raise KeyboardInterrupt", 130)])
def test_a_program_that_fails_is_profiled_until_then(polyhal: Command, tmp_path: Path, last: str, code: int) -> None:
    program = tmp_path / "failing.py"
    program.write_text(f"import polyhal\npolyhal.ones((3,)).exp()\n{last}\n")
    run = polyhal("profile", str(program), "--device", "numpy", "--html", str(tmp_path / "page.html"))
    assert run.code == code
    assert "\nexp " in run.err
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize("command", ["profile", "trace"])
@pytest.mark.parametrize(
    ("text", "last"), [("\n1/0\n", "ZeroDivisionError: division by zero"), ("1 +", "SyntaxError: ")]
)
def test_a_program_that_fails_shows_its_own_line(
    polyhal: Command, tmp_path: Path, command: str, text: str, last: str
) -> None:
    program = tmp_path / "failing.py"
    program.write_text(text)
    run = polyhal(command, program, "--device", "numpy")
    assert run.code == 1
    assert re.findall(r'File ".*?(\w+\.py)", line (\d)', run.err) == [("failing.py", "2" if "/" in text else "1")]
    assert last in run.err
    assert "unexpected" not in run.err
    assert command == "trace" or run.err.endswith("\n\nno op ran\n")


def test_an_output_without_a_folder_is_found_before_the_program_runs(polyhal: Command, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('ran')\n")
    run = polyhal("profile", str(program), "--trace", str(tmp_path / "absent" / "trace.json"))
    assert (run.code, run.out) == (2, "")
    assert "does not exist or cannot be written" in run.err
