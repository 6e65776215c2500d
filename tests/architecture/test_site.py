"""The documentation site has every page and every public name; `make site` builds it, where broken links are errors."""

from __future__ import annotations

import importlib
import re
from pathlib import Path, PurePosixPath

import pytest
from public_modules import APPLICATIONS, CONTRACT, LIBRARY
from test_applications import public_names

from polyhal import nn
from tools.site import reference
from tools.site.conf import arguments_of_module
from tools.site.docstrings import to_restructured_text
from tools.site.navigation import OF_THE_ROOT, with_others
from tools.site.source import repository_address, with_links

ROOT = Path(__file__).parents[2]
_DOCS = PurePosixPath("docs")


@pytest.fixture(scope="module")
def documented() -> set[str]:
    """Dotted names with an entry in the reference."""
    text = "\n".join(reference.pages().values())
    found = set(re.findall(r"^\.\. auto(?:class|function|module):: ([\w.]+)$", text, re.MULTILINE))
    pairs = re.findall(r"^\.\. py:\w+:: (\w+)\n   :module: ([\w.]+)$", text, re.MULTILINE)
    return found | {f"{module}.{name}" for name, module in pairs}


@pytest.mark.parametrize("module", [*LIBRARY, *APPLICATIONS, "polyhal.onnx", "polyhal.torch"])
def test_the_reference_has_every_public_name(module: str, documented: set[str]) -> None:
    loaded = importlib.import_module(module)
    names = public_names(loaded)
    assert names
    missing = {n for n in names if f"{module}.{n}" not in documented}
    assert {n for n in missing if getattr(loaded, n).__name__ not in documented} == set()


@pytest.mark.parametrize("module", CONTRACT)
def test_the_reference_has_every_definition_of_the_contract(module: str, documented: set[str]) -> None:
    loaded = importlib.import_module(module)
    defined = {n for n, v in vars(loaded).items() if getattr(v, "__module__", "") == module and not n.startswith("_")}
    assert {n for n in defined if f"{module}.{n}" not in documented} == set()


def test_lazy_layers_show_the_arguments_of_their_layers() -> None:
    text, _ = arguments_of_module(None, "class", "polyhal.nn.LazyLinear", nn.LazyLinear, None, None, None)
    assert text == "(out_features: int, bias: bool = True, device: Device | str | None = None, dtype: object = None)"


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")} - {"index"}
    listed = [page for section in with_others(pages) for page in section.pages]
    assert sorted(listed) == sorted({*pages, *OF_THE_ROOT, "reference/index"})


def test_a_page_without_a_section_is_listed_last() -> None:
    assert with_others(["index", "capture", "a-page"])[-1].pages == ("a-page",)


def test_links_lead_to_pages_to_the_repository_or_nowhere() -> None:
    text = "[a](capture.md#x) [b](../hal/layout.py) [c](../CHANGELOG.md) [d](https://x.y) ![e](pictures/e.png) [f](#g)"
    site = "[a](capture.md#x) {} [c](changelog.md) [d](https://x.y) ![e](pictures/e.png) [f](#g)"
    assert with_links(text, _DOCS, None) == site.format("b")
    address = "https://example.org/polyhal"
    assert with_links(text, _DOCS, address) == site.format(f"[b]({address}/blob/HEAD/hal/layout.py)")
    assert with_links("[a](docs/capture.md)", PurePosixPath(), None) == "[a](capture.md)"


@pytest.mark.parametrize("code", ["```python\n[a](../b)\n```\n", "    [a](../b)\n", "x\n\n    y = [a](../b)\n"])
def test_links_in_code_stay(code: str) -> None:
    assert with_links(code, _DOCS, None) == code


def test_the_address_of_the_repository_is_read_from_the_project(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\nname = 'x'\n", encoding="utf-8")
    assert repository_address(tmp_path) is None
    project.write_text("[project.urls]\nRepository = 'https://example.org/x/'\n", encoding="utf-8")
    assert repository_address(tmp_path) == "https://example.org/x"


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("`x + 1` and `matmul`", "``x + 1`` and :py:obj:`matmul`"),
        ("(*, N) of kind_", r"(\*, N) of kind\_"),
        ("the `axis`es", r"the :py:obj:`axis`\ es"),
        (">>> a * b_\n`2`", ">>> a * b_\n`2`"),
    ],
)
def test_docstrings_become_restructured_text(markdown: str, expected: str) -> None:
    assert "\n".join(to_restructured_text(markdown.split("\n"))) == expected
