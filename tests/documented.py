"""Claims of the pages of the documentation: their links, the files and definitions they name, and the numbers behind them."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from polyhal.hal.errors import PolyhalError

ROOT = Path(__file__).parent.parent
PAGES = [
    p.relative_to(ROOT)
    for p in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md")))
]
ROOMS = ("hal", "frontend", "apps", "backends", "shaders", "tests", "docs", "examples", "benchmarks")
_WORDS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
)
NUMBER = rf"(?i:\b(\d[\d,]*|{'|'.join(sorted(_WORDS, key=len, reverse=True))}))"
"""In a pattern: a number in digits or as a word."""


def python_blocks(page: Path) -> str:
    """The page's Python, in order, as one program."""
    return "\n\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Texts and targets of the page's links to this repository."""
    for text, target in re.findall(r"\[([^\]]+)\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target:
            yield text, target


def code_names(page: Path) -> Iterator[tuple[str, str]]:
    """Names in code style that link to source files, with the files. A link with a file's name as its text has none."""
    for text, target in links(page):
        name = re.fullmatch(r"`([\w.]+)(?:\(\))?`", text)
        if name and Path(target).suffix in (".py", ".cl", ".h", ".wgsl") and Path(target).name != name[1]:
            yield name[1], target


def defined_in(file: Path, name: str) -> bool:
    """Return whether a file defines a name: in Python a class, function, method or assignment; elsewhere any word."""
    if not file.is_file():
        return False
    source = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        return re.search(rf"\b{re.escape(name)}\b", source) is not None
    scope: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        node = next((n for n in scope if part in _names(n)), None)
        if node is None:
            return False
        scope = getattr(node, "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its titles."""
    section = (ROOT / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def repository_paths(page: Path) -> Iterator[str]:
    """Paths in code style that begin with a room of the repository; `*` matches any name."""
    yield from re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w./*-]*)(?::[^`]*)?`", prose(page))


def dotted_names(page: Path) -> Iterator[str]:
    """Names in code style that begin with `polyhal.` and are not followed by a placeholder."""
    yield from re.findall(r"`(polyhal(?:\.[a-zA-Z_]\w*)+)(?:\([^`]*\))?`", prose(page))


def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def numbers_in_words(text: str) -> str:
    """A number, which may be a word, in digits without separators."""
    word = text.lower()
    return str(_WORDS.index(word)) if word in _WORDS else text.replace(",", "")


def hardware() -> list[str]:
    """Names of all devices in coverage data and benchmark results, with their drivers."""
    names = []
    for file in (*(ROOT / "benchmarks" / "results").glob("*.json"), *(ROOT / "docs/data/coverage").glob("*.json")):
        names += re.findall(r'"(?:name|device|driver)": "([^"]+)"', file.read_text(encoding="utf-8"))
    return names


def facts() -> dict[str, Callable[[], tuple[Any, ...]]]:
    """Patterns with a group for each number, and the names of the numbers."""
    return {
        rf"{NUMBER} methods and {NUMBER} attributes": _contract,
        rf"{NUMBER} methods that every backend has": lambda: _contract()[:1],
        rf"{NUMBER} optional protocols": _optional_protocols,
        rf"{NUMBER} lines of Python\b": _template_lines,
        rf"backend of {NUMBER} lines\b": _template_lines,
        rf"step on a processor is {NUMBER} launches": lambda: _launches()[:1],
        rf"recorded as {NUMBER} nodes": lambda: _launches()[1:2],
        rf"submits the launches: {NUMBER} instead of {NUMBER}": lambda: (_launches()[2], _launches()[0]),
    }


def _contract() -> tuple[int, int]:
    from polyhal.hal.protocol import ComputeBackend

    members = {n for n in vars(ComputeBackend) if not n.startswith("_")}
    return len(members), len(ComputeBackend.__annotations__)


def _optional_protocols() -> tuple[int]:
    from polyhal.hal.protocol import PROTOCOLS

    return (len(PROTOCOLS),)


def _template_lines() -> tuple[int]:
    sources = (ROOT / "examples/plugins/template/src").rglob("*.py")
    return (sum(len(p.read_text(encoding="utf-8").splitlines()) for p in sources),)


@functools.cache
def _launches() -> tuple[int, int, int]:
    """The step of the tour on Intel's OpenCL: launches op by op, nodes of the graph, launches of a replay."""
    import polyhal
    from polyhal import nn, optim

    try:
        device = polyhal.Device("opencl:intel")
    except PolyhalError as error:
        pytest.skip(f"the tour's step is counted on Intel's OpenCL runtime: {error}")
    x = polyhal.linspace(-3, 3, 512, device=device).reshape((-1, 1))
    y = x.sin()
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)

    def step() -> polyhal.Tensor:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    captured = polyhal.jit(step)
    for _ in range(4):
        captured()
    backend: Any = device.backend
    counts = []
    for function in (step, captured):
        backend.start_profiling()
        function()
        counts.append(len(backend.stop_profiling()))
    return counts[0], len(captured.graphs[0].nodes), counts[1]
