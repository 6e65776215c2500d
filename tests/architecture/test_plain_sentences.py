"""The rules of CONTRIBUTING.md on sentences, counted: habits that a reader of the field's other code does not know."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.architecture.habits import CEILINGS, HABITS, ROOT, of_file, places, prose, rates

texts = cache(prose)
"""The prose of the whole checkout, read by the process that runs a test of it: all others import this file, too."""


@cache
def rates_of_all() -> dict[str, float]:
    return rates(texts())


@cache
def library() -> str:
    folders = ("hal", "backends", "frontend")
    return " ".join(" ".join(p.text.split()) for p in texts() if p.path.relative_to(ROOT).parts[0] in folders)


FIELD_WORDS = (
    "compute stream",
    "consumer",
    "critical path",
    "deadlock",
    "double-buffer",
    "hoist",
    "no-op",
    "rendezvous",
    "reshard",
    "sentinel",
    "thread pool",
)
"""Words that readers of other projects search for."""


@pytest.mark.parametrize("habit", HABITS)
def test_prose_keeps_below_the_ceiling_of_each_habit(habit: str) -> None:
    most = CEILINGS[habit]
    found = [f"{p.path}:{p.line}: {text}" for p, text in places(habit, texts())]
    rate = rates_of_all()[habit]
    assert rate <= most, f"{rate:.1f} per 10,000 words, at most {most}: {HABITS[habit][0]}\n" + "\n".join(found)


@pytest.mark.parametrize("word", FIELD_WORDS)
def test_words_of_the_field_occur_in_the_prose_of_the_library(word: str) -> None:
    pattern = r"\b" + re.sub("[- ]", "[- ]", word)
    assert re.search(pattern, library(), re.IGNORECASE), f"{word!r}: use it where a text describes it otherwise"


def test_habits_are_counted_in_docstrings_comments_and_pages(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a.py").write_text('"""What it is."""\n# Each reads what the other wrote.\nx = 1\n"""Those of x."""\n')
    (tmp_path / "b.md").write_text("It lies beside what is read.\n\n```\nwhat it reads\n```\n")
    (tmp_path / "c.cl").write_text("// From 4 rows on.\n/* Two, each of which gives one. */\nint what_it_is;\n")
    found = [p for name in ("a.py", "b.md", "c.cl") for p in of_file(tmp_path / name)]
    counts = {habit: sum(1 for _ in places(habit, found)) for habit in HABITS}
    assert counts == {
        "nominal what": 2,
        "opens with what": 2,
        "of which": 1,
        "anew, beside": 1,
        "from ... on": 1,
        "is there": 0,
        "gives, gets, knows": 1,
        "lies, stands": 1,
        "alike, alone, apart": 0,
    }


def test_genuine_questions_are_allowed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a.md").write_text("What if a device is lost? Ask what the device reports, and why?\n")
    assert not list(places("nominal what", list(of_file(tmp_path / "a.md"))))
