"""How replayed calls went, as lines and counts."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Verdict = Literal["agrees", "differs", "raises", "missing", "senseless"]
_FINE = ("agrees", "senseless")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one sample call went."""

    name: str
    dtype: str
    verdict: Verdict
    detail: str = ""
    call: str = ""

    @property
    def is_fine(self) -> bool:
        """True if nothing is left to do about it."""
        return self.verdict in _FINE


def describe(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Return the arguments of a call in short: dtypes and shapes instead of elements."""

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(text, value))}]"
        return repr(value)

    return ", ".join([*map(text, arguments), *(f"{k}={text(v)}" for k, v in keywords.items())])[:160]


def report(outcomes: list[Outcome], quiet: bool) -> None:
    """Print the disagreements of one entry; in one line if `quiet`."""
    bad = [o for o in outcomes if not o.is_fine]
    if bad and quiet:
        counts = ", ".join(f"{n} {v}" for v, n in Counter(o.verdict for o in outcomes).items())
        print(f"{bad[0].name} {bad[0].dtype}: {counts}; {bad[0].detail[:120]}")
    elif bad:
        absent = [o for o in bad if o.verdict == "missing"]
        if absent:
            print(f"{absent[0].name} {absent[0].dtype} missing: {len(absent)} cases")
        for o in bad:
            if o.verdict != "missing":
                print(f"{o.name} {o.dtype} {o.verdict}: ({o.call}) {o.detail}")
    sys.stdout.flush()


def summary(outcomes: list[Outcome]) -> str:
    """Return counts by verdict, and the share of sensible cases that agree."""
    counts = Counter(o.verdict for o in outcomes)
    sensible = sum(counts.values()) - counts["senseless"]
    share = 100 * counts["agrees"] / sensible if sensible else 100.0
    names = {o.name for o in outcomes if o.verdict != "senseless"}
    bad = {o.name for o in outcomes if o.verdict not in ("senseless", "agrees")}
    listed = ", ".join(f"{counts[v]} {v}" for v in ("agrees", "differs", "raises", "missing", "senseless"))
    return f"{listed}: {share:.2f} % of {sensible} cases agree; {len(names - bad)} of {len(names)} entries wholly"
