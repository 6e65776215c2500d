"""Messages of an installed package: pages that exist, commands that every shell takes, addresses from one place."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest
from documented import anchors
from survey import this_tree

from polyhal.hal.core.settings.pages import page

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
URLS: dict[str, str] = PROJECT["urls"]
OF_A_CHECKOUT = re.compile(
    r"(?<![\w/])(docs|tests|benchmarks|examples|tools)/[\w-]+[./][\w./-]*|CONTRIBUTING\.md|README\.md"
)
"""Paths that an installed package does not have."""
UNQUOTED = re.compile(r"(?<!\")polyhal\[\w+\]|polyhal\[\w+\](?!\\?\")")
"""Extras without double quotes: zsh expands the brackets, and cmd.exe passes single quotes on."""


def _texts() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every string that a user may see: all but docstrings of modules and private names."""
    tree = this_tree()
    for path, nodes in tree.nodes.items():
        hidden = set()
        for node in nodes:
            is_private = isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name.startswith("_")
            if (isinstance(node, ast.Module) or is_private) and ast.get_docstring(node, clean=False) is not None:
                hidden.add(id(node.body[0].value))  # type: ignore[attr-defined]
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
                yield f"{path.relative_to(tree.root)}:{node.lineno}", node.value


def test_no_message_names_a_file_of_the_checkout() -> None:
    found = {place: match[0] for place, text in _texts() if (match := OF_A_CHECKOUT.search(text))}
    assert found == {}, "name a page by polyhal.hal.core.settings.pages.page"


def test_extras_have_double_quotes_in_every_command() -> None:
    commands = [(place, text) for place, text in _texts() if "pip install" in text and "polyhal[" in text]
    assert len(commands) > 10
    assert {place: text for place, text in commands if UNQUOTED.search(text)} == {}
    named = {extra for _, text in commands for extra in re.findall(r"polyhal\[(\w+)\]", text)}
    assert named <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("pip install polyhal[cpu]", True),
        ("pip install 'polyhal[cpu]'", True),
        ('pip install "polyhal[cpu]"', False),
    ],
)
def test_the_check_of_quotes_finds_something(text: str, is_found: bool) -> None:
    assert bool(UNQUOTED.search(text)) is is_found


def test_every_page_that_a_message_names_exists() -> None:
    called = []
    for path, nodes in this_tree().nodes.items():
        if "polyhal.hal.core.settings.pages import page" not in this_tree().files[path]:
            continue
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "page":
                called.append((path, [a.value for a in node.args if isinstance(a, ast.Constant)]))
    assert len(called) >= 3
    for path, (name, *section) in called:
        file = ROOT / "docs" / f"{name}.md"
        assert file.exists(), path
        assert set(section) <= anchors(file), path


def test_addresses_are_the_projects() -> None:
    """The metadata of this environment is from when the project was installed."""
    assert set(URLS) == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert all(url.startswith(URLS["Homepage"]) for url in URLS.values())
    installed = dict(line.split(", ", 1) for line in metadata("polyhal").get_all("Project-URL") or [])
    folder = installed.get("Documentation", "docs")
    assert page("devices", "lists-of-devices") == f"{folder}/devices.md#lists-of-devices"
    others = {
        path.name: address
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
        for address in re.findall(r"https://[\w.]+/polyhal/[\w/.-]*", path.read_text(encoding="utf-8"))
        if not address.startswith(URLS["Homepage"])
    }
    assert others == {}
