"""Committed figures of the last replay of the whole database."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.torch.database.states import EntryOutcome, Outcome

RESULTS = Path(__file__).with_name("results.json")


@dataclass
class Results:
    """Outcomes by name of the entry, and how each op of the Core ATen opset runs, by overload."""

    pytorch: str = ""
    samples: int = 0
    entries: dict[str, EntryOutcome] = field(default_factory=dict)
    core: dict[str, str] = field(default_factory=dict)


def load(path: Path = RESULTS) -> Results:
    """Return the committed figures."""
    if not path.exists():
        return Results()
    data = json.loads(path.read_text(encoding="utf-8"))
    entries = {e["name"]: _entry(e) for e in data["entries"]}
    return Results(data["pytorch"], data["samples"], entries, data["core"])


def _entry(data: dict[str, Any]) -> EntryOutcome:
    forms = {k: _outcome(data.get(k)) for k in ("function", "in_place", "out")}
    return EntryOutcome(data["name"], data["dtype"], data["kind"], **forms)  # type: ignore[arg-type]


def _outcome(data: dict[str, Any] | None) -> Outcome | None:
    return None if data is None else Outcome(data["state"], tuple(data.get("ops", ())), data.get("detail", ""))


def record(
    outcomes: Iterable[EntryOutcome], core: dict[str, str], samples: int, path: Path = RESULTS, *, whole: bool = True
) -> None:
    """Write outcomes: replace all others, or only outcomes of the same entries."""
    entries = {**({} if whole else load(path).entries), **{o.name: o for o in outcomes}}
    lines = ",\n".join(json.dumps(_without_empty(asdict(entries[name]))) for name in sorted(entries))
    head = f'"pytorch": {json.dumps(torch.__version__)},\n"samples": {samples},\n"core": {json.dumps(core, indent=0)}'
    path.write_text(f'{{\n{head},\n"entries": [\n{lines}\n]\n}}\n', encoding="utf-8")


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data without None and empty values, except the kind."""
    kept = {k: _without_empty(v) if isinstance(v, dict) else v for k, v in data.items()}
    return {k: v for k, v in kept.items() if v or k == "kind"}
