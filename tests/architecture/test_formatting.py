"""The layout of Python is the formatter's, except for a few tables."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MAX_SKIPS = 60


def skips(text: str) -> Iterator[int]:
    """Yield the lines of a source that end with a comment for the formatter."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.string.startswith("# fmt: skip"):
            yield token.start[0]


def test_only_tables_of_modules_are_skipped_by_the_formatter() -> None:
    """See CONTRIBUTING.md."""
    names = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    count, wrong = 0, []
    for name in names:
        text = (ROOT / name).read_text(encoding="utf-8") if (ROOT / name).exists() else ""
        if "# fmt: skip" not in text:
            continue
        tables = {n.end_lineno for n in ast.parse(text).body if isinstance(n, ast.Assign | ast.AnnAssign)}
        lines = list(skips(text))
        count += len(lines)
        wrong += [f"{name}:{line}" for line in lines if line not in tables]
    assert wrong == []
    assert count <= _MAX_SKIPS


def test_the_comments_are_found() -> None:
    assert list(skips('A = [1]  # fmt: skip\nB = "# fmt: skip"\nC = (  # fmt: skip\n    1\n)\n')) == [1, 3]
