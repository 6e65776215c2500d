"""Names in the documentation exist: files, definitions, modules, rooms, and the words that readers search for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from documented import (
    PAGES,
    ROOMS,
    ROOT,
    anchors,
    code_names,
    defined_in,
    dotted_names,
    links,
    numbers_in_words,
    prose,
    python_blocks,
    repository_paths,
    resolves,
    table,
)
from layers import HAL

GLOSSARY = Path("docs/glossary.md")
ARCHITECTURE = Path("docs/architecture.md")
OF_PYTORCH = {Path("docs/coming-from-pytorch.md"), Path("docs/torch-coverage.md")}
"""Pages of names of PyTorch, generated from these."""
INVENTED = {
    "docs/quirks.md": {"avoid_mad24", "foocl_bug", "mad24"},
    "docs/architecture.md": {"cpu_"},
}
"""Names in code style that are examples or parts of names."""


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
    """A link such as [`Planner.plan`](../hal/compile/planning/planner.py) names a definition in that file."""
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


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Every word of the sources and of their paths."""
    suffixes = (".py", ".pyi", ".cl", ".h", ".wgsl", ".toml")
    files = [p for room in ROOMS for p in (ROOT / room).rglob("*") if p.suffix in suffixes and p.is_file()]
    return {word for file in files for word in re.findall(r"\w+", f"{file} {file.read_text(encoding='utf-8')}")}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_names_in_code_style_occur_in_the_sources(page: Path, words: set[str]) -> None:
    """A name that no source contains any more is one that was renamed."""
    text = _without_names_elsewhere(page)
    names = re.findall(r"`([A-Za-z_]\w*(?:\.\w+)*)(?:\(\))?`", text)
    unknown = {name for name in names if not words.issuperset(name.split("."))}
    if page in OF_PYTORCH:
        return
    assert unknown <= INVENTED.get(page.as_posix(), set())


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_shader_files_that_a_page_names_exist(page: Path) -> None:
    names = re.findall(r"`(\w+/\w+\.(?:cl|h|wgsl))`", (ROOT / page).read_text(encoding="utf-8"))
    assert [n for n in names if not any((ROOT / "shaders" / room / n).is_file() for room in ("opencl", "wgsl"))] == []


def _without_names_elsewhere(page: Path) -> str:
    """Return a page's prose, without the column of the glossary that names terms of other projects."""
    text = prose(page)
    if page == GLOSSARY:
        for row in _terms():
            text = text.replace(row[2], "")
    return text


def test_every_page_is_linked_from_another() -> None:
    linked = {
        ((ROOT / page).parent / target.partition("#")[0]).resolve() for page in PAGES for _, target in links(page)
    }
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.resolve() not in linked] == []


def _folders(*parents: str) -> set[str]:
    return {p.parent.name for parent in parents for p in (ROOT / parent).glob("*/*") if p.is_file()} - {"__pycache__"}


def test_the_table_of_rooms_is_the_tree() -> None:
    named = {cells[0].strip("`") for cells in table(ARCHITECTURE, "The folders of hal")}
    packages = (package.replace(".", "/") for layer in HAL for package in layer.packages)
    assert named == {f"hal/{name}" for name in packages if (ROOT / "hal" / name).is_dir()}


def test_the_table_of_kernels_is_the_tree() -> None:
    cells = [row[0] for row in table(ARCHITECTURE, "Lowering and kernels")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == _folders("backends/opencl_c/lowering", "backends/wgpu/lowering", "shaders/opencl", "shaders/wgsl")


def _terms() -> Iterator[list[str]]:
    for heading in (
        "Tensors and memory",
        "The contract",
        "Ops and planning",
        "Captured steps",
        "Kernels",
        "Verification",
    ):
        yield from table(GLOSSARY, heading)


def test_every_term_of_the_glossary_has_an_equivalent_and_a_file() -> None:
    rows = list(_terms())
    assert len(rows) >= 35
    assert [r[0] for r in rows if len(r) != 4 or not all(r)] == []
    assert [r[0] for r in rows if not re.search(r"\[`[^`]+`\]\([^)]+\)", r[3])] == [], "no link to a definition"
    terms = [r[0] for r in rows]
    assert len(terms) == len(set(terms))


LOOKED_FOR = table(GLOSSARY, "If you look for")


def _prose(file: Path) -> str:
    """Return a file in lower case, without the line breaks and marks that divide a term in comments."""
    return re.sub(r"\s+", " ", re.sub(r"\n\s*(?://|#|\*)?", " ", file.read_text(encoding="utf-8"))).lower()


@pytest.mark.parametrize("row", LOOKED_FOR, ids=lambda row: row[0])
def test_words_that_readers_search_for_occur_where_the_glossary_sends_them(row: list[str]) -> None:
    words = [word.strip().lower() for word in row[0].split(",")]
    texts = {file: _prose(ROOT / "docs" / file) for file in re.findall(r"\]\(([^)]+)\)", row[1])}
    assert texts
    assert [word for word in words if not any(word in text for text in texts.values())] == []
    assert [file for file, text in texts.items() if not any(word in text for word in words)] == []


@pytest.mark.parametrize(
    "word",
    ["producer", "split_k", "liveness", "prefetch", "warpgroup", "workaround", "deadlock", "rendezvous", "reshard"],
)
def test_the_words_of_the_field_have_a_row(word: str) -> None:
    assert any(word in row[0] for row in LOOKED_FOR)


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


def test_tables_are_found_under_their_headings(checked_page: Callable[[str], Path]) -> None:
    page = checked_page("## A\n| x | y |\n|---|---|\n| 1 | `2` |\n\ntext\n\n## B\n| z |\n|---|\n| 3 |\n")
    assert table(page, "A") == [["1", "`2`"]]
    assert table(page, "B") == [["3"]]
