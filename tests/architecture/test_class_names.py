"""A class name says one thing, so that a search for it leads to one place.

Lowering functions are left out: their rooms hold the same few kinds of thing once per family of kernels.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from survey import Tree, homonyms, this_tree

SHARED = {
    "Runtime": "an open device of OpenCL or of wgpu: files of lowering functions have the same signatures in both backends",
    "Uniform": "the distribution, and in declarations of ops samples that are drawn from an interval",
    "Tensor": "what users hold, and in launches the kernel parameter that passes one",
}
"""Names of several classes, with the reason."""


@pytest.fixture(scope="module")
def repeated_names() -> dict[str, list[str]]:
    return homonyms(this_tree())


def test_class_names_are_unique(repeated_names: dict[str, list[str]]) -> None:
    repeated = {name: files for name, files in repeated_names.items() if name not in SHARED}
    assert repeated == {}, "give each class a name that says its room"


def test_exceptions_are_needed(repeated_names: dict[str, list[str]]) -> None:
    assert SHARED.keys() <= repeated_names.keys(), "a name is unique again: remove it from the list"


def test_repeated_names_are_found(tmp_path: Path) -> None:
    for name, text in {
        "hal/a.py": "class Plan: ...\nclass _Private: ...",
        "frontend/b.py": "def f():\n    class Plan: ...\nclass _Private: ...",
        "backends/x/lowering/c.py": "class Plan: ...",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert homonyms(Tree(tmp_path)) == {"Plan": ["hal/a.py", "frontend/b.py"]}
