"""The page docs/coming-from-pytorch.md: what differs, and a table of every public name of PyTorch."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from tests.pytorch.names import NAMESPACES, Name, Status, all_names
from tests.pytorch.results import load, table

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-pytorch.md"
TRAPS = Path(__file__).with_name("coming_from_pytorch.md")
"""The written part of the page."""
_COLUMNS = (Status.THERE, Status.DIFFERS, Status.SPELLED, Status.ABSENT, Status.MISSING)


def page() -> str:
    """Return the text of the page."""
    names = list(all_names())
    written = TRAPS.read_text(encoding="utf-8").rstrip()
    return "\n".join([written, *_agreement(), "", *_overview(names), *_sections(names)]) + "\n"


def version(release: str) -> str:
    """How the page names a release of PyTorch: without patch and build."""
    return "PyTorch " + ".".join(release.split("+")[0].split(".")[:2])


def _overview(names: Sequence[Name]) -> Iterator[str]:
    common = [n for n in names if n.status is not Status.FOREIGN]
    there = sum(n.status in (Status.THERE, Status.DIFFERS) for n in common)
    spelled = sum(n.status is Status.SPELLED for n in common)
    yield "## Every public name"
    yield ""
    foreign = len(names) - len(common)
    text = f"""\
{there} of {len(common)} names of common use in {version(torch.__version__)} are available, and {spelled} more are spelled in \
another way. Names of common use are all public functions, classes and methods of the modules below, but for {foreign} that \
are [about something that is not here](#about-something-that-is-not-here), such as sparse tensors. A name is there if it is \
found in the module of the same name, with `polyhal` for `torch`. Tests compare its arguments with PyTorch's, and \
`python -m tests.pytorch` replays PyTorch's own sample calls to compare results and gradients."""
    yield from textwrap.wrap(text, 120, break_on_hyphens=False)
    yield ""
    yield f"| namespace | common use | {' | '.join(_COLUMNS)} |"
    yield "|---|---:|" + "---:|" * len(_COLUMNS)
    for namespace in NAMESPACES:
        yield _counts(
            f"[{_title(namespace)}](#{_title(namespace).strip('`').replace('.', '').lower()})", namespace, common
        )
    yield _counts("all", "", common)


def _agreement() -> Iterator[str]:
    """The figures of the last replays of PyTorch's databases."""
    rows = load()
    if rows:
        yield ""
        yield "## Agreement of results and gradients"
        yield ""
        yield "PyTorch's own sample calls, replayed by `python -m tests.pytorch`: results, gradients, second gradients and"
        yield "dtypes agree within PyTorch's tolerances, or are nearer to the results in float64 than PyTorch's."
        yield ""
        yield table(rows)


def _counts(title: str, namespace: str, names: Sequence[Name]) -> str:
    chosen = [n for n in names if n.namespace == namespace or not namespace]
    counts = Counter(n.status for n in chosen)
    return f"| {title} | {len(chosen)} | {' | '.join(str(counts[s]) for s in _COLUMNS)} |"


def _title(namespace: str) -> str:
    return "`torch`" if namespace == "torch" else f"`torch.{namespace}`"


def _sections(names: Sequence[Name]) -> Iterator[str]:
    for namespace in NAMESPACES:
        yield from _section(namespace, [n for n in names if n.namespace == namespace])
    yield ""
    yield "### About something that is not here"
    yield ""
    yield "| about | names |"
    yield "|---|---|"
    for reason, chosen in _by_detail(names, Status.FOREIGN):
        yield f"| {reason} | {_listed(chosen, qualified=True)} |"


def _section(namespace: str, names: Sequence[Name]) -> Iterator[str]:
    yield ""
    yield f"### {_title(namespace)}"
    there = [n for n in names if n.status is Status.THERE]
    if there:
        yield ""
        yield f"There: {_listed(there)}."
    rows = [n for n in names if n.status in (Status.DIFFERS, Status.SPELLED, Status.ABSENT)]
    if rows:
        yield ""
        yield "| PyTorch | here |"
        yield "|---|---|"
        for status in (Status.DIFFERS, Status.SPELLED):
            yield from (f"| {_listed(chosen)} | {detail} |" for detail, chosen in _by_detail(names, status))
        yield from (
            f"| {_listed(chosen)} | left out: {reason} |" for reason, chosen in _by_detail(names, Status.ABSENT)
        )
    missing = [n for n in names if n.status is Status.MISSING]
    if missing:
        yield ""
        yield f"Missing: {_listed(missing)}."


def _by_detail(names: Sequence[Name], status: Status) -> list[tuple[str, list[Name]]]:
    """Group the names of a status by their detail."""
    groups: dict[str, list[Name]] = defaultdict(list)
    for name in names:
        if name.status is status:
            groups[name.detail].append(name)
    return sorted(groups.items(), key=lambda group: group[1][0].name.lower())


def _listed(names: Sequence[Name], *, qualified: bool = False) -> str:
    return ", ".join(
        f"`{n.namespace}.{n.name}`" if qualified and n.namespace != "torch" else f"`{n.name}`" for n in names
    )
