"""The documentation is true: its programs run, its links and names exist, and its numbers are computed here.

docs/adding-a-backend.md describes a distribution of its own and is tested with that: see tests/plugins.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from documented import (
    PAGES,
    ROOT,
    anchors,
    code_names,
    defined_in,
    dotted_names,
    facts,
    hardware,
    links,
    numbers_in_words,
    python_blocks,
    repository_paths,
    resolves,
)

from polyhal.cli.app import COMMANDS

DOCS = ROOT / "docs"

_KIT = {
    "README.md": "assert loss.item() < 0.01",
    "docs/capture.md": "",
    "docs/streams.md": "assert abs(c[0, 0].item() - 66.71828) < 1e-3",
    "docs/memory.md": "assert more.batch_size >= found.batch_size > 64",
    "docs/tour.md": "",
    "docs/adding-a-fusion.md": """
import polyhal
from polyhal.hal.testing import Scope, cases
made = [c for c in cases(polyhal.Device("numpy"), Scope()) if c.id.split("/")[1] == "squared_relu"]
assert len(made) >= 8, [c.id for c in made]
for case in made:
    case.run()
""",
    "docs/adding-an-op.md": """
from polyhal.hal.testing import Scope, cases
device = polyhal.Device("numpy")
made = [c for c in cases(device, Scope()) if c.id.split("/")[1] in ("softsign", "mean_abs")]
assert len(made) >= 16, [c.id for c in made]
for case in made:
    case.run()
""",
}
"""Pages whose Python runs as one program, and what is run after it."""


@pytest.mark.parametrize("name", sorted(_KIT))
def test_the_programs_of_a_page_run(name: str, tmp_path: Path) -> None:
    """In a subprocess, because pages declare ops or backends, and on NumPy, which is available everywhere."""
    program = tmp_path / "page.py"
    program.write_text(python_blocks(ROOT / name) + _KIT[name], encoding="utf-8")
    environment = {**os.environ, "POLYHAL_DEVICE": "numpy"}
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_names_in_links_to_code_are_defined_there(page: Path) -> None:
    """A link such as [`Planner.plan`](../hal/planning/planner.py) names a definition in that file."""
    missing = [
        f"{name} in {target}"
        for name, target in code_names(page)
        if not defined_in((ROOT / page).parent / target, name)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert [path for path in repository_paths(page) if not list(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_names_of_the_package_that_a_page_mentions_exist(page: Path) -> None:
    declared = re.findall(r"^(\w+) = ", python_blocks(ROOT / page), re.MULTILINE)
    names = set(dotted_names(page)) - {f"polyhal.{name}" for name in declared}
    assert [name for name in sorted(names) if not resolves(name)] == []


def test_every_page_is_linked_from_another() -> None:
    linked = {
        ((ROOT / page).parent / target.partition("#")[0]).resolve() for page in PAGES for _, target in links(page)
    }
    assert [page.name for page in DOCS.glob("*.md") if page.resolve() not in linked] == []


FACTS = facts()


@pytest.mark.parametrize("pattern", FACTS)
def test_numbers_are_true_wherever_they_are_said(pattern: str) -> None:
    """A pattern may occur on any page, occurs on at least one, and always with the numbers that are computed here."""
    expected = tuple(map(str, FACTS[pattern]()))
    said = {
        f"{page}: {match.group(0)}": tuple(numbers_in_words(g) for g in match.groups())
        for page in PAGES
        for match in re.finditer(pattern, re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8")))
    }
    assert said, f"no page says {pattern!r}"
    assert {where: numbers for where, numbers in said.items() if numbers != expected} == {}, expected


def test_the_readme_shows_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^    polyhal (\w+)", text, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_that_a_page_shows_exist(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = set(re.findall(r"(?:^    |`)polyhal ([a-z]\w*)", text, re.MULTILINE))
    assert shown <= set(COMMANDS)


def test_the_readme_names_the_gpus_that_results_are_from() -> None:
    """Coverage data and benchmark results of another vendor make the README's "not yet" untrue."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names = " ".join(hardware())
    assert "NVIDIA H200" in names
    untried = re.search(r"not yet run on ([\w, ]+) GPUs", text)
    assert untried is not None
    vendors = re.findall(r"[A-Z]\w+", untried.group(1))
    assert vendors == ["AMD", "Apple", "Arm", "Intel"]
    assert [v for v in ("AMD", "Radeon", "Apple", "Arm", "Mali", "Arc") if re.search(rf"\b{v}\b", names)] == []


def _glossary_rows() -> Iterator[list[str]]:
    for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| term")):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_term_of_the_glossary_has_an_equivalent_and_a_file() -> None:
    rows = list(_glossary_rows())
    assert len(rows) >= 35
    assert [r[0] for r in rows if len(r) != 4 or not all(r)] == []
    where = [r[0] for r in rows if not re.search(r"\[`[^`]+`\]\([^)]+\)", r[3])]
    assert where == [], "no link to a definition"
    terms = [r[0] for r in rows]
    assert len(terms) == len(set(terms))


@pytest.fixture
def checked_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A page with the given text, in a repository of its own."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "hal").mkdir()
    (tmp_path / "hal" / "x.py").write_text("class A:\n    def f(self): ...\n\nLIMIT: int = 3\n", encoding="utf-8")

    def write(text: str) -> Path:
        page = tmp_path / "docs" / "page.md"
        page.write_text(text, encoding="utf-8")
        monkeypatch.setattr("documented.ROOT", tmp_path)
        return page

    return write


def test_the_checks_find_something(checked_page: Callable[[str], Path]) -> None:
    page = checked_page(
        "# A b\n## C, `d`!\n[`A.f`](../hal/x.py) [`A.g`](../hal/x.py) `hal/x.py` `hal/y.py:3` [z](#c-d)"
    )
    assert list(links(page)) == [("`A.f`", "../hal/x.py"), ("`A.g`", "../hal/x.py"), ("z", "#c-d")]
    assert anchors(page) == {"a-b", "c-d"}
    assert [defined_in(page.parent / target, name) for name, target in code_names(page)] == [True, False]
    assert defined_in(page.parent / "../hal/x.py", "LIMIT")
    assert list(repository_paths(page)) == ["hal/x.py", "hal/y.py"]
    assert numbers_in_words("fifteen") == "15"
