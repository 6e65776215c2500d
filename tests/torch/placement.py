"""Devices and agreement of replayed cases of layers and optimizers: committed figures and their lines on the page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import polyhal.torch
from tests.torch.database.states import STATES, Outcome

NAME = "polyhal"
"""Name of the device in PyTorch."""
LEAST_SHARE = 98.0
"""Minimum percentage of cases of a database that must agree."""
RESULTS = Path(__file__).with_name("placement.json")


@dataclass(frozen=True)
class Case:
    """A replayed case of the entry `name`; the outcome is None if PyTorch's CPU refuses it."""

    name: str
    text: str
    outcome: Outcome | None


@dataclass(frozen=True)
class Figures:
    """Figures of one database: cases by state, and the responsible ops of each entry that is not wholly on the device."""

    database: str
    pytorch: str
    device: str
    states: dict[str, int]
    elsewhere: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of cases."""
        return sum(self.states.values())

    @property
    def share(self) -> float:
        """The percentage of cases that agree."""
        bad = self.states.get("refused", 0) + self.states.get("differs", 0)
        return 100 * (self.total - bad) / max(self.total, 1)


def observed(compare: Callable[[], str]) -> Outcome:
    """Run a comparison, which describes differences, and record where its ops ran."""
    polyhal.torch.reset_report()
    try:
        problem = compare()
    except Exception as error:
        return Outcome("refused", (), f"{type(error).__name__}: {error}".split("\n")[0][:200])
    report = polyhal.torch.report()
    if problem:
        return Outcome("differs", (), problem[:200])
    if report.on_cpu:
        return Outcome("cpu", tuple(map(_short, report.on_cpu)))
    return Outcome("decomposed", tuple(map(_short, report.decomposed))) if report.decomposed else Outcome("device")


def _short(op: str) -> str:
    return op.removeprefix("aten.").removesuffix(".default")


def on_cpu(tree: Any) -> Any:
    """Copy all tensors of a nest to the CPU, detached."""
    return torch.utils._pytree.tree_map(lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, tree)


def figures_of(database: str, device: str, cases: Iterable[Case]) -> Figures:
    """Return the figures of replayed cases."""
    counts: Counter[str] = Counter()
    elsewhere: dict[str, set[str]] = {}
    for case in cases:
        if case.outcome is not None:
            counts[case.outcome.state] += 1
            if case.outcome.state != "device":
                elsewhere.setdefault(case.name, set()).update(case.outcome.ops or (case.outcome.state,))
    states = {s: counts[s] for s in STATES if counts[s]}
    return Figures(database, torch.__version__, device, states, {k: sorted(v) for k, v in sorted(elsewhere.items())})


def load(path: Path = RESULTS) -> list[Figures]:
    """Return the committed figures."""
    return [Figures(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def record(figures: Figures, path: Path = RESULTS) -> None:
    """Write figures, replacing older ones of the same database and device."""
    merged = {(f.database, f.device): f for f in (*load(path), figures)}
    path.write_text(json.dumps([asdict(merged[k]) for k in sorted(merged)], indent=1) + "\n", encoding="utf-8")


def section(rows: Sequence[Figures]) -> list[str]:
    """Return the lines of the page."""
    lines = [
        "## Layers and optimizers",
        "",
        "PyTorch's databases of layers (`common_modules`: outputs, state after the call and gradients, in training and",
        "evaluation) and of optimizers (`common_optimizers`: parameters and state after some steps of each implementation),",
        "replayed by `python -m tests.torch.modules` and `.optimizers`. Counted are cases that PyTorch's CPU takes.",
        "",
        "| database | device | cases | agree, % | wholly on the device | decomposed | part on the CPU | refused | differ |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for f in rows:
        counts = " | ".join(str(f.states.get(s, 0)) for s in STATES)
        lines.append(f"| {f.database} | {f.device} | {f.total} | {f.share:.2f} | {counts} |")
    for f in rows:
        if f.elsewhere:
            listed = ", ".join(f"`{name}` ({', '.join(ops)})" for name, ops in f.elsewhere.items())
            lines += ["", f"Not wholly on the device {f.device}, {f.database}: {listed}."]
    return lines
