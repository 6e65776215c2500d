"""How many of PyTorch's sample calls agree, per database, device and dtype: the committed figures and their table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.pytorch.outcome import Outcome

RESULTS = Path(__file__).with_name("results.json")
"""The figures of the last replays of whole databases."""
LEAST_SHARE = 99.0
"""In percent of the sensible cases of a row."""
_VERDICTS = ("differs", "raises", "missing")


@dataclass(frozen=True)
class Row:
    """The figures of one database on one device in one dtype.

    `limit` is the most sample calls per entry, None for all; `senseless` counts cases without a counterpart, such as sparse
    tensors; `entries` maps disagreeing entries to the number of their cases.
    """

    database: str
    device: str
    dtype: str
    limit: int | None
    agrees: int
    differs: int
    raises: int
    missing: int
    senseless: int
    entries: dict[str, int] = field(default_factory=dict)

    @property
    def sensible(self) -> int:
        """The number of cases that could agree."""
        return self.agrees + self.differs + self.raises + self.missing

    @property
    def share(self) -> float:
        """The percentage of sensible cases that agree."""
        return 100 * self.agrees / self.sensible if self.sensible else 100.0

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of a row, which a newer row of the same key replaces."""
        return self.database, self.device, self.dtype


def rows_of(database: str, device: str, limit: int | None, outcomes: Iterable[Outcome]) -> list[Row]:
    """Return one row per dtype of the outcomes."""
    by_dtype: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_dtype.setdefault(outcome.dtype, []).append(outcome)
    rows = []
    for dtype, of_dtype in by_dtype.items():
        counts = Counter(o.verdict for o in of_dtype)
        entries = dict(sorted(Counter(o.name for o in of_dtype if o.verdict in _VERDICTS).items()))
        rows.append(
            Row(
                database,
                device,
                dtype,
                limit,
                counts["agrees"],
                counts["differs"],
                counts["raises"],
                counts["missing"],
                counts["senseless"],
                entries,
            )
        )
    return rows


def load(path: Path = RESULTS) -> list[Row]:
    """Return the committed rows."""
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []


def record(rows: Sequence[Row], path: Path = RESULTS) -> None:
    """Write rows, in place of older ones of the same database, device and dtype."""
    merged = {row.key: row for row in (*load(path), *rows)}
    lines = ",\n".join(json.dumps(asdict(merged[key])) for key in sorted(merged))
    path.write_text(f"[\n{lines}\n]\n")


def table(rows: Sequence[Row]) -> str:
    """Return a table in Markdown."""
    lines = [
        "| database | device | dtype | agree | of sensible cases | % | missing here | no counterpart | calls per entry |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        lines.append(
            f"| {r.database} | {r.device} | {r.dtype} | {r.agrees} | {r.sensible} | {r.share:.2f} | {r.missing} "
            f"| {r.senseless} | {'all' if r.limit is None else f'at most {r.limit}'} |"
        )
    return "\n".join(lines)


def is_enough(rows: Iterable[Row]) -> bool:
    """Return whether enough cases of every row agree."""
    return all(row.share >= LEAST_SHARE for row in rows)
