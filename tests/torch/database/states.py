"""Where a call ran: the states of calls, and of entries of the database, from best to worst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["device", "decomposed", "cpu", "refused", "differs"]
STATES: tuple[State, ...] = ("device", "decomposed", "cpu", "refused", "differs")
"""By kernels of the device alone; some by PyTorch's decompositions into these; partly on the CPU; an error; another result."""
Kind = Literal["", "complex", "sparse", "quantised"]
"""What all samples of an entry are about, if not ordinary numbers."""


@dataclass(frozen=True)
class Outcome:
    """Where one call ran. `ops` names the ops behind the state, `detail` says what was refused or differs."""

    state: State
    ops: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class EntryOutcome:
    """Where the calls of an entry ran: of the function with its gradient, in place, and with `out=`.

    A form that PyTorch does not have, or that no sample fits, is None.
    """

    name: str
    dtype: str
    kind: Kind
    function: Outcome
    in_place: Outcome | None = None
    out: Outcome | None = None


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The worst of several states with all ops behind it, and the first detail; None for no outcome."""
    found = list(outcomes)
    if not found:
        return None
    state = max((o.state for o in found), key=STATES.index)
    chosen = [o for o in found if o.state == state]
    return Outcome(state, tuple(sorted({op for o in chosen for op in o.ops})), chosen[0].detail)
