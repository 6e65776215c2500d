"""`polyhal export` writes C from a program's captured function, and from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyhal.hal.system.discovery.registry import registry

from .conftest import Command

PROGRAM = """\
import polyhal
from polyhal import nn
model = nn.Linear(3, 2)
double = polyhal.jit(lambda x: model(x) * 2)
for _ in range(3):
    double(polyhal.ones(1, 3))
polyhal.save_graph(double, "double.safetensors")
"""


@pytest.mark.skipif(not registry().probe("opencl"), reason="needs an OpenCL device")
def test_a_program_s_function_and_a_file_become_c(polyhal: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = polyhal("export", "program.py:double", "c", "--c", "--name", "twice")
    assert done.code == 0, done.err
    assert "cmake -S c -B c/build" in " ".join(done.out.split())
    assert (tmp_path / "c" / "twice.h").exists()
    done = polyhal("export", "double.safetensors", "embedded", "--c", "--embed")
    assert done.code == 0, done.err
    assert {p.name for p in (tmp_path / "embedded").iterdir()} == {
        "CMakeLists.txt",
        "main.c",
        "runtime",
        "step.c",
        "step.h",
    }


def test_bad_requests_are_one_sentence(polyhal: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("x = 1\n")
    for arguments, expected in [
        (("absent.safetensors", "c", "--c", "--device", "numpy"), "absent.safetensors does not exist"),
        (("program.py:step", "c", "--c", "--device", "numpy"), "program.py has no step"),
        (("program.py:x", "c"), "no form is chosen; expected --c"),
    ]:
        done = polyhal("export", *arguments)
        assert done.code == 2
        assert expected in " ".join(done.err.split())
        assert not (tmp_path / "c").exists()
