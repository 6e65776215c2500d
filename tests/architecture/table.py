"""The table of measures of the source: size, structure, names, docstrings, types, tests, commits.

Run `python -m tests.architecture.table [FOLDER ...]` for a table with a column per checkout. Everything is read from the
source and from git, so old and new checkouts can be compared.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

from tests.architecture.functions import branches, every_function, parameters, statements_of
from tests.architecture.kernel_scalars import kernel_scalars
from tests.architecture.survey import Tree, homonyms, name_tests, private_rebuilds, rooms, undocumented
from tests.architecture.tracked import AREAS, commit_subjects, repeated_share, tracked_lines

_SUBJECT = 72
"""Maximum length of a commit's subject, see CONTRIBUTING.md."""
_WIDTH = 120


def docstring_share(tree: Tree, under: str) -> float:
    """Return the share of public functions, methods and classes below a folder that have a docstring or inherit one."""
    missing, count = undocumented(tree, under)
    return 1 - len(missing) / max(1, count)


def _asserts(tree: Tree) -> str:
    counts: Counter[str] = Counter()
    for nodes in tree.nodes.values():
        for node in nodes:
            if isinstance(node, ast.Assert):
                test = ast.unparse(node.test)
                narrows = test.startswith("isinstance") or test.endswith("is not None")
                counts["narrowing" if narrows else "other"] += 1
            elif isinstance(node, ast.Raise):
                counts["raise"] += 1
    return f"{counts['raise']:,} : {counts['narrowing'] + counts['other']} ({counts['narrowing']})"


def _quantiles(counts: Collection[int], *percent: int) -> str:
    """Return quantiles and the maximum, separated by slashes."""
    ordered = sorted(counts) or [0]
    at = [ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in percent]
    return " / ".join(map(str, [*at, ordered[-1]]))


def _share_of_any(tree: Tree, under: str = "") -> str:
    annotations = [
        ast.unparse(a.annotation) for f in tree.functions(under) for a in f.args.args if a.annotation is not None
    ]
    return f"{sum('Any' in a for a in annotations) / max(1, len(annotations)):.0%}"


def _lengths(tree: Tree) -> list[int]:
    return [text.count("\n") for text in tree.files.values() if text.strip()]


def _function_lines(tree: Tree) -> list[int]:
    return [statements_of(f) for f in every_function(tree)]


@cache
def _complexities(tree: Tree) -> list[int]:
    return [branches(f) for f in every_function(tree)]


def _complexity(tree: Tree) -> str:
    found = _complexities(tree)
    simple = sum(c <= 10 for c in found) / max(1, len(found))
    return f"{statistics.mean(found):.1f}; {simple:.1%}; {sum(c > 20 for c in found)}; {max(found)}"


def _file_names(tree: Tree) -> str:
    names = Counter(path.stem for path in tree.files if path.stem != "__init__")
    several = {name: count for name, count in names.items() if count > 1}
    return f"{len(several)} names, {sum(several.values())} of {sum(names.values())} files"


def _occurrences(tree: Tree, text: str) -> int:
    return sum(source.count(text) for source in tree.files.values())


@cache
def _tests(root: Path) -> tuple[str, ...]:
    return tuple(p.read_text(encoding="utf-8") for p in sorted((root / "tests").rglob("*.py")))


def _test_functions(tree: Tree) -> str:
    found = [
        node
        for text in _tests(tree.root)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    words = statistics.mean(f.name.count("_") for f in found)
    lines = [(f.end_lineno or 0) - f.lineno + 1 for f in found]
    return f"{len(found):,}; {words:.1f}; {_quantiles(lines, 50, 90)}"


def _in_tests(tree: Tree, pattern: str) -> int:
    return sum(len(re.findall(pattern, text)) for text in _tests(tree.root))


def _tracked(tree: Tree) -> str:
    files = tracked_lines(tree.root)
    code = sum(lines for path, lines in files.items() if path.suffix != ".json")
    return f"{len(files):,} / {sum(files.values()):,} ({code:,})"


def _area(tree: Tree, area: str) -> str:
    return f"{sum(n for path, n in tracked_lines(tree.root).items() if AREAS[area](path)):,}"


def _subjects(tree: Tree) -> str:
    lengths = [len(s) for s in commit_subjects(tree.root)]
    return f"{_quantiles(lengths, 50, 90)}; {sum(n > _SUBJECT for n in lengths)} of {len(lengths)}"


_LINES: dict[str, Callable[[Tree], object]] = {
    "tracked files / lines (without JSON)": _tracked,
    **{f"lines, {area}": lambda t, area=area: _area(t, area) for area in AREAS},
    "lines of a source file, p50 / p90 / max": lambda t: _quantiles(_lengths(t), 50, 90),
    "lines of a function, p50 / p90 / max": lambda t: _quantiles(_function_lines(t), 50, 90),
    "functions of 60 lines or more": lambda t: (
        f"{sum(n > 60 for n in _function_lines(t))} of {len(_function_lines(t)):,}"
    ),
    "cyclomatic complexity: mean; at most 10; above 20; max": _complexity,
    "functions with 7 parameters or more": lambda t: sum(parameters(f) >= 7 for f in every_function(t)),
    "flat modules in hal": lambda t: len(list((t.root / "hal").glob("*.py"))) - 1,
    "flat modules in the frontend": lambda t: len(list((t.root / "frontend").glob("*.py"))) - 1,
    "rooms of hal": lambda t: rooms(t, "polyhal.hal").count,
    "floors of hal": lambda t: rooms(t, "polyhal.hal").floors,
    "arrows between rooms of hal (upward)": lambda t: "{0.arrows} ({0.upward})".format(rooms(t, "polyhal.hal")),
    "rooms of OpenCL lowering": lambda t: rooms(t, "polyhal.backends.opencl_c.lowering").count,
    "arrows between them (upward)": lambda t: "{0.arrows} ({0.upward})".format(
        rooms(t, "polyhal.backends.opencl_c.lowering")
    ),
    "class names with several homes": lambda t: len(homonyms(t)),
    "file names with several homes": _file_names,
    "comparisons of ops by name": lambda t: len(name_tests(t)),
    "private maps of producers or users": lambda t: len(private_rebuilds(t)),
    "scalars of an OpenCL kernel, p50 / max": lambda t: _quantiles(
        kernel_scalars(t.root / "shaders" / "opencl").values(), 50
    ),
    "docstrings, own or inherited": lambda t: f"{docstring_share(t, '.'):.0%}",
    "parameters whose type contains Any": _share_of_any,
    **{
        f"parameters whose type contains Any, {folder}": lambda t, folder=folder: _share_of_any(t, folder)
        for folder in ("hal/ops", "frontend/torch", "frontend/serialize", "frontend/func", "hal/core/dispatch")
    },
    "type: ignore": lambda t: _occurrences(t, "type: ignore"),
    "raise : assert (that narrow a type)": _asserts,
    f"lines of more than {_WIDTH} characters": lambda t: sum(
        len(line) > _WIDTH for text in t.files.values() for line in text.splitlines()
    ),
    "fmt: skip": lambda t: _occurrences(t, "fmt: skip") + _in_tests(t, "fmt: skip"),
    "repeated text, windows of 6 lines": lambda t: f"{repeated_share(t.files.values()):.1%}",
    "tests; words per name; lines p50 / p90 / max": _test_functions,
    "monkeypatch.setattr in tests": lambda t: _in_tests(t, r"monkeypatch\.setattr"),
    "device: Any in tests": lambda t: _in_tests(t, r"\bdevice: Any\b"),
    f"commit subjects, characters p50 / p90 / max; above {_SUBJECT}": _subjects,
}


def main(folders: list[str]) -> None:
    """Print the table."""
    trees = [Tree(Path(folder).resolve()) for folder in folders or ["."]]
    for title, measure in _LINES.items():
        print(f"| {title} | " + " | ".join(str(measure(t)) for t in trees) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
