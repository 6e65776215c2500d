"""Tables on terminals with 80 and 120 columns: lines wrap between words, and no text is cut off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from polyhal.cli.commands.doctor import answer
from polyhal.cli.display import plain_table, say_wrapped
from polyhal.cli.fitted_table import FittedTable
from polyhal.hal.system.diagnostics.doctor import examine
from polyhal.hal.system.diagnostics.selftest import SelfTest

from .conftest import Command

ROWS = [
    ("→", "opencl:0", "pthread-skylake-avx512-AMD EPYC", "cpu", "21.5 GiB", "Portable Computing Language 3.1+debian"),
    ("", "wgpu:0", "llvmpipe (LLVM 15.0.6, 256 bits)", "cpu", "23.5 GiB", "Vulkan Mesa 22.3.6"),
]


def _printed(width: int) -> list[str]:
    table = plain_table("", "device", "name", "kind", "memory", "driver", right=["memory"])
    for row in ROWS:
        table.add_row(*row)
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_word_is_broken_and_none_is_lost(width: int) -> None:
    lines = _printed(width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).replace(";", "").split()
    for row in ROWS:
        for word in " ".join(row).split():
            assert word in words, (word, lines)


@pytest.mark.parametrize("padding", [(0, 2), (0, 2, 0, 0)])
@pytest.mark.parametrize("width", range(20, 100, 7))
def test_a_long_cell_is_wrapped_and_not_cut(width: int, padding: tuple[int, ...]) -> None:
    table = FittedTable(box=None, show_header=False, padding=padding)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    cells = "docs/troubleshooting.md#hosts", "59 of 320 ops run on the host and other devices that have no float64"
    table.add_row(*cells)
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    words = capture.get().split()
    assert sorted(words) == sorted(" ".join(cells).split()) or width < len(cells[0])


def test_a_wide_terminal_has_one_line_for_each_row() -> None:
    assert len(_printed(200)) == 1 + len(ROWS)
    assert len(_printed(60)) > 1 + len(ROWS)


def test_prose_is_wrapped_at_words_and_a_path_stays_whole() -> None:
    path = "/home/someone/.cache/polyhal/opencl/vendors/intel.icd"
    line = f"    {path}: libintelocl.so, which is loaded first, as its device is the default"
    console = Console(width=40, record=True, file=None, force_terminal=True, color_system=None)
    with console.capture() as capture:
        say_wrapped(console, line)
    lines = capture.get().splitlines()
    assert " ".join(lines).split() == line.split()
    assert lines[0] == f"    {path}:"
    assert all(len(x) <= 40 and x.startswith("      ") for x in lines[1:])


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("command", [("devices",), ("sim", "devices")], ids=" ".join)
def test_commands_break_no_name(
    polyhal: Command, monkeypatch: pytest.MonkeyPatch, columns: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    outcome = polyhal(*command)
    assert outcome.code == 0
    words = outcome.out.replace(";", "").split()
    expected = {"devices": ["NumPy"], "sim": ["bandwidth", "Processor", "Raspberry"]}[command[0]]
    assert set(expected) <= set(words)


def test_doctor_begins_with_its_answer(polyhal: Command) -> None:
    first, *rest = polyhal("doctor", "--no-test").out.splitlines()
    assert first.startswith("Polyhal will use ")
    assert not any(line.startswith("Polyhal will use") for line in rest)


def test_the_answer_of_doctor_has_each_failure_with_its_remedy() -> None:
    report = examine(tests=False)
    first = next(d for d in report.devices if d.name == "numpy")
    wrong = SelfTest("a @ b", False, 0.0, 0.0, 1.0, "off by 1")
    broken = replace(first, name="opencl:9", problem="lost", fix="restart the machine", default=False)
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        answer(console, replace(report, devices=(replace(first, tests=(wrong,)), broken), problems=(), next_step=""))
    lines = capture.get().splitlines()
    assert lines[0].startswith("Polyhal will use ")
    assert lines[1:] == [
        "numpy computes wrong results (a @ b): update its driver, or run polyhal verify numpy to stop using its wrong kernels",
        "opencl:9 cannot be opened: restart the machine",
    ]
