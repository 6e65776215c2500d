"""Claims of the pages of the documentation: their links, the files and definitions they name, and the numbers behind them."""

from __future__ import annotations

import ast
import functools
import importlib
import json
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
        r"(\d+) of (\d+) memory-bound workloads": _memory_bound,
        r"and a sum,\s+at ([\d.]+) to ([\d.]+)\.": _slow_memory_bound,
        r"Depthwise convolution is ([\d.]+) to ([\d.]+) times": _depthwise,
        r"attention in half precision ([\d.]+) to\s+([\d.]+)\.": _half_attention,
        r"on 10,000 elements, called eagerly, at ([\d.]+) of": lambda: (f"{_ratios(lambda r: r['wall'])[0]:.2f}",),
        r"perceptron at ([\d.]+), a small GPT at ([\d.]+), GPT-2 in bfloat16 at ([\d.]+), a small\s+classifier at ([\d.]+), "
        r"a GPT of 10 million parameters in bfloat16 at ([\d.]+), ResNet-50 in\s+bfloat16 at (\d\.\d+)": _steps,
        r"of 256 units are ([\d.]+) to ([\d.]+) times": lambda: _layers(r"(LSTM|GRU) .* 256 wide", 1),
        r"of 1024 units ([\d.]+) to ([\d.]+) times": lambda: _layers(r"LSTM .* 1024 wide", 2),
        r"half precision reach ([\d.]+) to ([\d.]+) of PyTorch's speed": _products,
        r"convolutions in float32 ([\d.]+) to ([\d.]+)[,.] ": _convolutions,
        r"is ([\d.]+) times as fast as PyTorch's eager one in float32": lambda: _gpt2("high"),
        r"and ([\d.]+) times in bfloat16": lambda: _gpt2("bfloat16"),
        r"decoding is ([\d.]+) times as fast": _decoding,
        r"a captured step of a small GPT is ([\d.]+) times as fast": _small_gpt,
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


def _result(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text("utf-8"))["rows"]
    return rows


_NVIDIA = "cuda:0"
"""The default device on NVIDIA's cards."""


def _ratios(chosen: Callable[[dict[str, Any]], object]) -> list[float]:
    """Return the speedups over PyTorch of the selected workloads on the H200."""
    ratios = []
    for row in _result("h200-kernels"):
        seconds = {n.partition(" ")[0]: s[0] for n, s in row["seconds"].items()}
        if chosen(row) and {"PyTorch", _NVIDIA} <= seconds.keys():
            ratios.append(seconds["PyTorch"] / seconds[_NVIDIA])
    return ratios


_NEARLY = 0.95


def _memory_bound() -> tuple[int, int]:
    ratios = _ratios(lambda r: not r["flops"] and not r["wall"])
    return sum(x >= _NEARLY for x in ratios), len(ratios)


def _slow_memory_bound() -> tuple[str, str]:
    ratios = [x for x in _ratios(lambda r: not r["flops"] and not r["wall"]) if x < _NEARLY]
    assert len(ratios) == 6, "three products, the decoding of 16, the sort and a sum"
    return f"{min(ratios):.2f}", f"{max(ratios):.2f}"


def _half_attention() -> tuple[str, str]:
    ratios = _ratios(lambda r: re.match(r"attention b?float16", r["name"]))
    return f"{min(ratios):.2f}", f"{max(ratios):.2f}"


def _depthwise() -> tuple[str, str]:
    """Return the figures of the kernels and of the layers."""
    ratios = [*_ratios(lambda r: "depthwise" in r["name"]), *map(float, _layers("depthwise", 3))]
    return f"{min(ratios):.1f}", f"{max(ratios):.1f}"


def _steps() -> tuple[str, ...]:
    """How many times as fast as PyTorch's fastest way captured steps are."""
    found = {r["model"]: r["who"] for r in _result("h200-steps") if r["device"] == _NVIDIA}
    models = ("mlp", "gpt", "gpt-2", "cnn", "gpt-10m", "resnet-50")
    best = (min(w["ms"] for n, w in found[m].items() if n.startswith("PyTorch")) for m in models)
    return tuple(f"{ms / found[m]['captured']['ms']:.2f}" for m, ms in zip(models, best, strict=True))


def _products() -> tuple[str, str]:
    ratios = _ratios(lambda r: re.fullmatch(r"matmul (4096|8192) (highest|float16|bfloat16)", r["name"]))
    return f"{min(ratios):.2f}", f"{max(ratios):.2f}"


def _convolutions() -> tuple[str, str]:
    ratios = _ratios(lambda r: re.fullmatch(r"conv .* highest( and gradients)?", r["name"]))
    return f"{min(ratios):.2f}", f"{max(ratios):.2f}"


def _layers(pattern: str, digits: int) -> tuple[str, str]:
    """How many times as fast as PyTorch's fastest way captured layers of the H200 are."""
    ratios = []
    for row in _result("h200-layers"):
        if re.match(pattern, row["name"]):
            others = [s[0] for n, s in row["seconds"].items() if not n.startswith("opencl")]
            ratios.append(min(others) / row["seconds"]["opencl:0 captured"][0])
    return f"{min(ratios):.{digits}f}", f"{max(ratios):.{digits}f}"


def _gpt2(precision: str) -> tuple[str]:
    (row,) = (r for r in _result("h200-training-step") if r["model"] == "gpt-2" and r["precision"] == precision)
    return (f"{row['who']['PyTorch']['ms'] / row['who']['captured']['ms']:.1f}",)


def _decoding() -> tuple[str]:
    (row,) = _result("h200-decode")
    return (f"{row['torch']['seconds'][0] / row['polyhal']['seconds'][0]:.1f}",)


def _small_gpt() -> tuple[str]:
    rows = [r["who"] for r in _result("cpu-training-step") if r["model"] == "gpt"]
    (ratio,) = {f"{r['PyTorch']['ms'] / r['captured']['ms']:.1f}" for r in rows}
    return (ratio,)
