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

TRIPLE = """\
for _ in range(3):
    triple(polyhal.ones(1, 3))
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


def test_a_program_s_functions_and_a_file_become_pages(polyhal: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"{PROGRAM}triple = polyhal.jit(lambda x: model(x) * 3)\n" + TRIPLE)
    done = polyhal("export", "program.py:double,triple", "page.html", "--device", "numpy", "--title", "Two steps")
    assert done.code == 0, done.err
    assert "wrote page.html" in done.out
    page = (tmp_path / "page.html").read_text()
    assert "<title>Two steps</title>" in page
    assert '"shared": {"triple": ' in page
    done = polyhal("export", "double.safetensors", "folder", "--web")
    assert done.code == 0, done.err
    assert {"index.html", "export.json", "export.bin", "polyhal.js"} <= {
        p.name for p in (tmp_path / "folder").iterdir()
    }


def test_bad_requests_are_one_sentence(polyhal: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("x = y = 1\n")
    for arguments, expected in [
        (("absent.safetensors", "c", "--c", "--device", "numpy"), "absent.safetensors does not exist"),
        (("program.py:step", "c", "--c", "--device", "numpy"), "program.py has no step"),
        (("program.py:x", "c"), "no form is chosen; expected a page .html, --web or --c"),
        (("program.py:x", "page.html", "--c"), "two forms are chosen"),
        (("program.py:x,y", "c", "--c", "--device", "numpy"), "2 functions are named; expected one for --c"),
        (("program.py:x,z", "c", "--web", "--device", "numpy"), "program.py has no z"),
        (("program.py", "c", "--web", "--page", "absent.js"), "absent.js"),
    ]:
        done = polyhal("export", *arguments)
        assert done.code == 2
        assert expected in " ".join(done.err.split())
        assert not (tmp_path / "c").exists()
