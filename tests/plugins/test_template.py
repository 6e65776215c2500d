"""The distribution to copy: it follows docs/adding-a-backend.md, and a working backend once pip has installed it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "examples" / "plugins" / "template"
PAGE = (ROOT / "docs" / "adding-a-backend.md").read_text(encoding="utf-8")
FILES = sorted(
    str(p.relative_to(TEMPLATE))
    for p in TEMPLATE.rglob("*")
    if p.suffix in (".py", ".toml") and "build" not in p.parts  # pip leaves a copy there
)
_CONTRACT, _FORWARD = 40, 280
"""Minimum numbers of cases of the contract and of ops in float32 on a device with the required members only."""


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.polyhal_every_case
@pytest.mark.parametrize("name", FILES)
def test_page_shows_the_whole_file(name: str) -> None:
    """The page's blocks for a file, one after the other, are the file."""
    blocks = re.findall(rf"^```\w+ {re.escape(name)}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert _lines("".join(blocks)) == _lines((TEMPLATE / name).read_text(encoding="utf-8"))


def test_page_names_no_other_file() -> None:
    assert set(re.findall(r"^```\w+ (\S+)$", PAGE, re.MULTILINE)) == set(FILES)


def test_backend_is_short() -> None:
    """The promise of the page: 120 lines for a backend, docstrings and blank lines included."""
    assert sum(len(p.read_text(encoding="utf-8").splitlines()) for p in (TEMPLATE / "src").rglob("*.py")) <= 120


def test_is_listed(template: Any) -> None:
    done = template.run("-m", "polyhal", "devices")
    assert done.returncode == 0, done.stderr
    assert "tiny:0" in done.stdout


def test_page_runs(template: Any, tmp_path: Path) -> None:
    """The page's uses of the device, in order, as one program. Of the kit it runs one op: the next test runs it all."""
    text = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
    whole, one = "scope=Scope(small=True))", 'scope=Scope(small=True), only="*/gelu/*")'
    assert text.count(whole) == 1
    program = tmp_path / "page.py"
    program.write_text(f"{text.replace(whole, one)}\nassert report.passed", encoding="utf-8")
    done = template.run(str(program))
    assert done.returncode == 0, done.stderr
    assert "gelu" in done.stdout


def test_passes_the_conformance_kit(template: Any, kit_sample: list[str], pytestconfig: pytest.Config) -> None:
    """By its own tests, as its author would run them, less gradients and other dtypes, which NumPy runs with as few members."""
    cases = "contract or (forward and float32)"
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--polyhal-small", *kit_sample, "-k", cases)
    done = template.run("-m", "pytest", *options, "tests")
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed.group(1)) >= _CONTRACT + _FORWARD // pytestconfig.getoption("polyhal_sample")


@pytest.mark.slow
def test_trains(template: Any) -> None:
    """To the accuracy that the example asks for."""
    done = template.run(str(ROOT / "examples" / "digits_mlp.py"), "--device", "tiny", "--steps", "300")
    assert done.returncode == 0, done.stdout + done.stderr
