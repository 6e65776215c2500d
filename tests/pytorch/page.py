"""The page docs/coming-from-pytorch.md: what differs, and a table of every public name of PyTorch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.pytorch.names import NAMESPACES, Name, Status, all_names

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-pytorch.md"
TRAPS = Path(__file__).with_name("coming_from_pytorch.md")
"""The written part of the page."""


def page() -> str:
    """The text of the page."""
    names = list(all_names())
    return "\n".join([TRAPS.read_text().rstrip(), "", *_tables(names)]) + "\n"


def _tables(names: Sequence[Name]) -> Iterator[str]:
    yield "## Every public name"
    yield ""
    yield "Generated from PyTorch's modules by `python -m tests.pytorch page`. A name counts as there if it is found at"
    yield "the same place, with `polyhal` for `torch`; whether it does the same is what `python -m tests.pytorch` replays."
    yield ""
    yield "| namespace | names | there | spelled in another way | absent for a reason | missing |"
    yield "|---|---:|---:|---:|---:|---:|"
    by_namespace: dict[str, list[Name]] = defaultdict(list)
    for name in names:
        by_namespace[name.namespace].append(name)
    for namespace in NAMESPACES:
        yield _counts(_title(namespace), by_namespace[namespace])
    yield _counts("all", names)
    for namespace in NAMESPACES:
        yield from _section(namespace, by_namespace[namespace])


def _title(namespace: str) -> str:
    return "`torch`" if namespace == "torch" else f"`torch.{namespace}`"


def _counts(title: str, names: Sequence[Name]) -> str:
    counts = Counter(n.status for n in names)
    return f"| {title} | {len(names)} | {' | '.join(str(counts[s]) for s in Status)} |"


def _section(namespace: str, names: Sequence[Name]) -> Iterator[str]:
    yield ""
    yield f"### {_title(namespace)}"
    there = [f"`{n.name}`" for n in names if n.status is Status.THERE]
    if there:
        yield ""
        yield f"There: {', '.join(there)}."
    spelled = [n for n in names if n.status is Status.SPELLED]
    if spelled:
        yield ""
        yield "| PyTorch | here |"
        yield "|---|---|"
        yield from (f"| `{n.name}` | {n.detail} |" for n in spelled)
    reasons: dict[str, list[str]] = defaultdict(list)
    for n in names:
        if n.status is Status.ABSENT:
            reasons[n.detail].append(f"`{n.name}`")
    for reason, absent in sorted(reasons.items()):
        yield ""
        yield f"Absent ({reason}): {', '.join(absent)}."
    missing = [f"`{n.name}`" for n in names if n.status is Status.MISSING]
    if missing:
        yield ""
        yield f"Missing: {', '.join(missing)}."
