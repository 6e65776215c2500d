"""States of calls and of entries of the database, from best to worst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["device", "decomposed", "cpu", "refused", "differs"]
STATES: tuple[State, ...] = ("device", "decomposed", "cpu", "refused", "differs")
"""Only kernels of the device; also PyTorch's decompositions into kernels; partly on the CPU; an error; another result."""
Kind = Literal["", "complex", "sparse", "quantised"]
"""Kind of tensors in all samples of an entry, unless they are ordinary numbers."""


@dataclass(frozen=True)
class Outcome:
    """State of one call. `ops` are the ops that caused the state, `detail` describes a refusal or difference."""

    state: State
    ops: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class EntryOutcome:
    """States of an entry: the function with its gradient, in place, and with `out=`.

    A form is None if PyTorch does not have it, or if no sample is applicable.
    """

    name: str
    dtype: str
    kind: Kind
    function: Outcome
    in_place: Outcome | None = None
    out: Outcome | None = None


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the worst of several states with all ops that caused it, and the first detail; None without outcomes."""
    found = list(outcomes)
    if not found:
        return None
    state = max((o.state for o in found), key=STATES.index)
    chosen = [o for o in found if o.state == state]
    return Outcome(state, tuple(sorted({op for o in chosen for op in o.ops})), chosen[0].detail)
