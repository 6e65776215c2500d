"""Metadata of the distribution: citation, licences, and the checks of `make dist`."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from tools import distribution, third_party

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_agrees_with_the_project() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([\w-]+): (.+)$", text, re.MULTILINE))
    keywords = re.findall(r"^  - (?!name)(.+)$", text, re.MULTILINE)
    assert fields["cff-version"] == "1.2.0"
    assert fields["type"] == "software"
    assert fields["version"] == PROJECT["version"]
    assert fields["license"] == PROJECT["license"]
    assert fields["repository-code"] == PROJECT["urls"]["Source"]
    assert keywords == PROJECT["keywords"]
    assert re.findall(r"^  - name: (.+)$", text, re.MULTILINE) == [a["name"] for a in PROJECT["authors"]]


def test_the_licence_of_every_package_is_known_and_true() -> None:
    recorded = third_party.recorded()
    assert list(recorded) == list(third_party.requirements()), "run `python -m tools.third_party`"
    assert {name for name, licence in recorded.items() if licence == third_party.UNKNOWN} == set()
    installed = {name: found for name in recorded if (found := third_party.installed_licence(name))}
    assert len(installed) > 8
    # Versions differ in their words, "MIT" and "MIT License": the words of the shorter text are in the other.
    words = {name: (_words(recorded[name]), _words(found)) for name, found in installed.items()}
    assert {name: pair for name, pair in words.items() if not pair[0] & pair[1]} == {}


def _words(licence: str) -> set[str]:
    """Return the words that distinguish a licence."""
    return set(re.findall(r"[a-z]+", licence.lower())) - {"license", "licence", "software", "and", "clause", "for"}


def test_a_wrong_wheel_is_noticed(tmp_path: Path) -> None:
    """A missing, an additional and a changed file, and missing notices: each is reported once."""
    names = distribution.tracked(ROOT)
    expected = distribution.expected_files(ROOT, names)
    assert {
        "polyhal/__init__.py",
        "polyhal/py.typed",
        "polyhal/models/__init__.py",
        "polyhal_autoload/__init__.py",
    } <= set(expected)
    few = {w: f for w, f in expected.items() if w.startswith("polyhal_autoload/")} | {
        "polyhal/py.typed": "frontend/py.typed"
    }
    wheel = tmp_path / "polyhal-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in few:
            if name != "polyhal/py.typed":
                file.writestr(name, (ROOT / expected[name]).read_bytes() + b"# changed\n")
        file.writestr("polyhal/left_over.py", "")
        file.writestr("polyhal-0.dist-info/licenses/LICENSE", "")
    kept = [f for f in names if f in few.values()]
    found = list(distribution.problems(ROOT, kept, wheel))
    assert "polyhal/py.typed: not in the wheel" in found
    assert "polyhal/left_over.py: in the wheel, but not in the repository" in found
    assert "THIRD-PARTY.md: not in the wheel's metadata" in found
    assert sum("differs from" in line for line in found) == len(few) - 1
    assert len(found) == len(few) + 2
