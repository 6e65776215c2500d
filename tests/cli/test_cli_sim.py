"""`polyhal sim`: the profiles, and a page that shows a script's run on a simulated device."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from polyhal.cli.views.sim_page import times_per_op, times_per_step

from .conftest import Command

_SCRIPT = """
import sys
import polyhal as ph
x = ph.ones((32, 32))
print(sys.argv[1:], (x @ x).relu().sum().item())
del x
ph.ones((8,)).numpy()
"""


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects the data and all addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.data = ""
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in ("meta", "input", "link", "br"):
            self.open.append("data" if ("id", "data") in attrs else tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() in (tag, "data")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "data":
            self.data += data


def test_the_page_holds_the_log_and_needs_nothing_else(polyhal: Command, tmp_path: Path) -> None:
    Path("s.py").write_text(_SCRIPT)
    outcome = polyhal("sim", "explain", "s.py", "--device", "sim:rx480", "--packets", "--", "a", "b")
    assert outcome.code == 0, outcome.err
    assert "['a', 'b'] 32768.0" in outcome.out
    assert "none wrong" in outcome.out
    assert re.search(r"^#\d+ +DISPATCH +kernel \d+", outcome.out, re.MULTILINE), "decoded packets"
    text = Path("s.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [], "all elements are closed"
    assert page.addresses == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    data = json.loads(page.data)
    log = data["log"]
    assert f"{len(log)} events" in outcome.out
    assert data["device"]["profile"] == "rx480"
    assert {"allocate", "submit", "execute", "transfer", "wait"} <= {e["action"] for e in log}
    ops, steps = times_per_op(log), times_per_step(log)
    assert sum(row.calls for row in ops) == sum(e["action"] == "execute" for e in log)
    assert "matmul" in {row.name for row in ops}
    assert len(steps) == 2, "the host waits for two results"
    assert all(row.name in text for row in ops)
    assert "<!--" not in text


def test_two_pages_of_one_script_are_equal(polyhal: Command) -> None:
    Path("s.py").write_text(_SCRIPT)
    pages = []
    for memory in ("64MiB", "65MiB"):  # separate devices: a device's clock continues
        assert polyhal("sim", "explain", "s.py", "--device", f"sim:h200,memory={memory}").code == 0
        pages.append(json.loads(Page(Path("s.html").read_text(encoding="utf-8")).data)["log"])
    times = [[(e["action"], e["start_ns"], e["end_ns"]) for e in log] for log in pages]
    assert times[0] == times[1]


def test_a_wrong_result_ends_with_code_1(polyhal: Command) -> None:
    Path("s.py").write_text(_SCRIPT)
    Path("f.toml").write_text('[[fault]]\nkind = "wrong_result"\nname = "matmul"\n')
    outcome = polyhal("sim", "explain", "s.py", "--device", "sim:rx480,faults=f.toml")
    assert outcome.code == 1
    assert "matmul" in outcome.err
    assert "1 wrong" in outcome.out


def test_profiles_are_listed(polyhal: Command) -> None:
    profiles = json.loads(polyhal("sim", "devices", "--json").out)["devices"]
    assert {"teaching", "h200", "cpu_2core"} <= {p["profile"] for p in profiles}
    assert "sim:h200" in polyhal("sim", "devices").out


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        (None, [], "does not exist"),
        ("1/0", [], "the script failed with ZeroDivisionError: division by zero"),
        ("x =", [], "the script failed with SyntaxError"),
        ("raise SystemExit(3)", [], "the script ended with exit code 3"),
        ("print(1)", [], "did not use"),
        ("print(1)", ["--device", "sim:h1000"], "unknown card 'h1000'"),
        ("print(1)", ["--device", "sim:h200,speed=3"], "is not an option of a simulated device"),
        ("print(1)", ["--device", "numpy"], "'numpy' is not a simulated device"),
    ],
)
def test_errors_of_explain_are_one_sentence(
    polyhal: Command, script: str | None, options: list[str], expected: str
) -> None:
    if script is not None:
        Path("s.py").write_text(script)
    outcome = polyhal("sim", "explain", "s.py", *options)
    assert outcome.code == 2
    assert expected in outcome.err
    assert outcome.err.count("\n") == 1
    assert not Path("s.html").exists()


def test_a_calibrated_device_can_be_simulated(polyhal: Command) -> None:
    outcome = polyhal("sim", "calibrate", "sim:irisxe,compute=off", "--output", "mine.toml")
    assert outcome.code == 0, outcome.err
    assert "card: mine.toml; to use it: Device('sim:mine.toml')" in outcome.out
    assert re.search(r"arithmetic +\d\.\d+ TFLOP/s in float32", outcome.out)
    explained = Path("s.py")
    explained.write_text(_SCRIPT)
    assert polyhal("sim", "explain", "s.py", "--device", "sim:mine.toml").code == 0
    assert "Iris Xe Graphics" in Path("s.html").read_text(encoding="utf-8")


def test_the_file_of_a_profile_is_named_after_the_device(polyhal: Command) -> None:
    outcome = polyhal("sim", "calibrate", "sim:teaching,compute=off")
    assert outcome.code == 0, outcome.err
    assert [p.name for p in Path().glob("*.toml")] == ["sim_teaching_compute_off.toml"]


@pytest.mark.parametrize(
    ("device", "output", "expected"),
    [
        ("numpyy", "x.toml", "'numpyy' is not available"),
        ("sim:h1000", "x.toml", "unknown card 'h1000'"),
        ("described:rx6800", "x.toml", "described:rx6800 is a described device, which cannot be measured"),
        ("numpy", "no/such/folder/x.toml", "No such file or directory"),
        ("numpy", ".", "does not end in .toml"),
        ("numpy", "x.txt", "x.txt does not end in .toml"),
    ],
)
def test_errors_of_calibrate_are_one_sentence(polyhal: Command, device: str, output: str, expected: str) -> None:
    outcome = polyhal("sim", "calibrate", device, "--output", output)
    assert outcome.code == 2
    assert expected in outcome.err
    assert outcome.err.count("\n") == 1
    assert not list(Path().glob("*.toml"))
