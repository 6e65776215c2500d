"""Count the habits of a private grammar in docstrings, comments and Markdown, per 10,000 words.

Run `python -m tests.architecture.habits` for the table, `--list HABIT [FOLDER]` for every place. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.architecture.survey import blocks

ROOT = Path(__file__).resolve().parents[2]

HABITS: dict[str, tuple[str, re.Pattern[str]]] = {
    name: (rule, re.compile(pattern, flags))
    for name, (rule, pattern, flags) in {
        "nominal what": (
            "a *what*-clause is not a noun: 'its operands', not 'what it reads'",
            r"(?<![.!?:] )(?<!^)\bwhat\b(?! (?:if|about)\b)(?![^.!?]*\?)",
            re.MULTILINE,
        ),
        "opens with what": ("a sentence begins with its subject or verb", r"^(?:What|Whether|Those|The same)\b", 0),
        "of which": (
            "one sentence for each statement",
            r"\bof (?:which|whose|these|those)\b",
            re.IGNORECASE,
        ),
        "anew, beside": (
            "overlapped with, in addition to, re-...",
            r"\banew\b|\bbesides?\b|\bof so many\b",
            re.IGNORECASE,
        ),
        "from ... on": ("a minimum or a start has a name", r"\bfrom (?:[\w.`()*]+ ){1,2}on\b(?! the\b)", re.IGNORECASE),
        "is there": (
            "a state has a name: resident, allocated, ready",
            r"\b(?:is|are|was|were) there\b(?=[ ]*[.,;:)]|$)",
            re.IGNORECASE,
        ),
        "gives, gets, knows": (
            "programs send, receive, return, require, contain",
            r"\b(?:gives|gets|told|asked|knows|wants|sees)\b",
            re.IGNORECASE,
        ),
        "lies, stands": ("stored, live, represented by", r"\b(?:lies?|stands?|stood)\b", re.IGNORECASE),
        "alike, alone, apart": (
            "equal, only, separate, jointly",
            r"\b(?:alike|alone|apart|together)\b",
            re.IGNORECASE,
        ),
    }.items()
}
"""The rule and the pattern of each habit. Opening words are looked for in every docstring and comment, not in each sentence."""

GOALS = {
    "nominal what": 5.0,
    "opens with what": 0.0,
    "of which": 1.0,
    "anew, beside": 0.5,
    "from ... on": 0.2,
    "is there": 0.2,
    "gives, gets, knows": 5.0,
    "lies, stands": 1.0,
    "alike, alone, apart": 2.0,
}
"""Places per 10,000 words in IREE, whose sentences are plain; the tree is on its way there."""
ANCHORS = {
    "CLBlast": (5.2, 0.0, 0.7, 0.0, 0.4, 0.1, 0.4, 0.8, 1.6),
    "array-api-strict": (1.4, 0.0, 4.2, 0.0, 1.4, 0.0, 5.6, 0.0, 2.1),
    "ggml": (0.6, 0.0, 0.2, 0.0, 0.0, 0.0, 1.3, 0.0, 1.3),
    "candle": (0.3, 0.0, 0.3, 0.3, 0.0, 0.0, 5.8, 0.3, 3.1),
    "IREE": (2.9, 0.0, 1.0, 0.1, 0.1, 0.0, 3.0, 0.1, 0.9),
    "MLX": (0.7, 0.0, 0.3, 0.0, 0.1, 0.1, 2.0, 0.2, 1.4),
    "pluggy": (2.2, 0.0, 0.0, 0.0, 0.0, 0.0, 2.2, 0.0, 0.0),
    "tinygrad": (1.2, 0.0, 1.7, 0.0, 0.0, 0.2, 3.3, 0.1, 1.3),
    "burn": (3.0, 0.3, 0.5, 0.1, 0.1, 0.1, 3.3, 0.1, 2.0),
}
"""Places per 10,000 words in nine other projects, counted on their sources in 2026 by these patterns."""
CEILINGS = {
    "nominal what": 1.0,
    "opens with what": 0.0,
    "of which": 1.0,
    "anew, beside": 0.5,
    "from ... on": 0.2,
    "is there": 0.2,
    "gives, gets, knows": 1.8,
    "lies, stands": 1.0,
    "alike, alone, apart": 1.2,
}
"""Places per 10,000 words that the whole tree may have. They only go down."""


_STRING_OR_COMMENT = re.compile(
    r"""
    (\"{3}|'{3}) (?:[^\\]|\\.)*? \1   # a long string
    | (["']) (?:[^\\\n]|\\.)*? \2     # a short one
    | (?P<comment>\#[^\n]*)
    """,
    re.DOTALL | re.VERBOSE,
)
"""Pattern of strings and comments of Python. Python's own tokenizer takes ten times as long."""


class Prose(NamedTuple):
    """A docstring, a run of comment lines, or a Markdown paragraph."""

    path: Path
    line: int
    text: str


def prose(folder: Path = ROOT) -> list[Prose]:
    """Return the prose of every tracked file below a folder of a Git checkout. Generated pages and data are left out."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=folder, capture_output=True, text=True, check=True).stdout
    return [p for name in listed.split("\0") if name and not _is_generated(name) for p in of_file(folder / name)]


def _is_generated(name: str) -> bool:
    return name.startswith("docs/data/") or "/results/" in name


@cache
def of_file(path: Path) -> tuple[Prose, ...]:
    """Return the prose of one file; none for files of other kinds."""
    reader = _READERS.get(path.suffix)
    return tuple(reader(path, path.read_text(encoding="utf-8"))) if reader and path.exists() else ()


def _of_python(path: Path, text: str) -> Iterator[Prose]:
    for statement in _statements(ast.parse(text)):
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield Prose(path, value.lineno, _without_code(value.value))
    yield from _runs(path, list(_python_comments(text)))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in blocks(node):
        yield child
        yield from _statements(child)


def _python_comments(text: str) -> Iterator[tuple[int, str]]:
    line, at = 1, 0
    for found in _STRING_OR_COMMENT.finditer(text):
        if found["comment"]:
            line, at = line + text.count("\n", at, found.start()), found.start()
            yield line, found["comment"].lstrip("#: ")


def _of_kernel(path: Path, text: str) -> Iterator[Prose]:
    for found in re.finditer(r"/\*.*?\*/", text, re.DOTALL):
        yield Prose(path, text.count("\n", 0, found.start()) + 1, re.sub(r"(?m)^\s*/?\*+/?", "", found.group()[:-2]))
    lines = enumerate(text.split("\n"), 1)
    yield from _runs(path, [(n, found[1]) for n, line in lines if (found := re.search(r"//+ ?(.*)", line))])


def _runs(path: Path, comments: list[tuple[int, str]]) -> Iterator[Prose]:
    """Join comments of adjacent lines."""
    run: list[str] = []
    for k, (line, text) in enumerate(comments):
        if re.match(r"(?:type|noqa|fmt|pragma|mypy|ruff)\b", text):
            continue
        run.append(text)
        if k + 1 == len(comments) or comments[k + 1][0] != line + 1:
            yield Prose(path, line + 1 - len(run), " ".join(run))
            run = []


def _of_markdown(path: Path, text: str) -> Iterator[Prose]:
    bare = re.sub(r"(?ms)^```.*?^```$", lambda found: "\n" * found.group().count("\n"), text)
    line = 1
    for paragraph in bare.split("\n\n"):
        if paragraph.strip():
            yield Prose(path, line, _without_code(paragraph.strip()))
        line += paragraph.count("\n") + 2


def _without_code(text: str) -> str:
    return re.sub(
        r"`[^`\n]*`", "`code`", re.sub(r"(?m)^(?: {4,}|>>> ).*$" if "::" in text else r"(?m)^>>> .*$", "", text)
    ).strip()


_READERS = {
    ".py": _of_python,
    ".md": _of_markdown,
    ".cl": _of_kernel,
    ".h": _of_kernel,
    ".wgsl": _of_kernel,
}


def places(habit: str, texts: list[Prose]) -> Iterator[tuple[Prose, str]]:
    """Return every place of a habit, with the words around it."""
    pattern = HABITS[habit][1]
    for p in texts:
        for found in pattern.finditer(p.text):
            yield p, " ".join(p.text[max(0, found.start() - 50) : found.end() + 50].split())


def words(texts: list[Prose]) -> int:
    """Return the number of words."""
    return sum(len(re.findall(r"[A-Za-z][A-Za-z'-]*", p.text)) for p in texts)


def rates(texts: list[Prose]) -> dict[str, float]:
    """Return places per 10,000 words by habit."""
    total = max(words(texts), 1)
    return {habit: 1e4 * sum(1 for _ in places(habit, texts)) / total for habit in HABITS}


def main() -> None:
    """Print the table or the places of one habit."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.habits", description=__doc__)
    parser.add_argument("--list", choices=HABITS, help="print every place of a habit")
    parser.add_argument("folders", nargs="*", help="folders or files of this checkout (default: all)")
    options = parser.parse_args()
    chosen = [Path(f).resolve() for f in options.folders] or [ROOT]
    texts = [p for p in prose() if any(p.path.is_relative_to(f) for f in chosen)]
    if options.list:
        for p, text in places(options.list, texts):
            print(f"{p.path.relative_to(ROOT)}:{p.line}: {text}")
        return
    others = "".join(f"{name:>{len(name) + 2}}" for name in ANCHORS)
    print(f"{words(texts):,} words\n{'per 10,000 words':21}{'here':>6}{'at most':>9}{'goal':>6}{others}")
    for place, (habit, rate) in enumerate(rates(texts).items()):
        others = "".join(f"{figures[place]:{len(name) + 2}.1f}" for name, figures in ANCHORS.items())
        print(f"{habit:21}{rate:6.1f}{CEILINGS[habit]:9.1f}{GOALS[habit]:6.1f}{others}")


if __name__ == "__main__":
    main()
