"""Constraints of generated tokens, such as a grammar, as the engine uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from polyhal.hal.errors import PolyhalError


class ConstraintError(PolyhalError, ValueError):
    """A constraint that is invalid, too large, or exceeds its limits while it is applied."""


class TokenConstraint(Protocol):
    """The texts that a request allows. Several sequences may use it."""

    def start(self) -> ConstraintState:
        """Return the state before the first token."""


class ConstraintState(Protocol):
    """The tokens of one sequence so far, and which may follow."""

    @property
    def is_complete(self) -> bool:
        """True if no token may follow."""

    def fill(self, row: np.ndarray) -> None:
        """Store which tokens may follow as bits of a row of uint32 words, all of them 0 before. Raises ConstraintError."""

    def accept(self, token: int) -> bool:
        """Add a token; no-op that returns False if it may not follow."""

    def retract(self, count: int) -> None:
        """Remove the last tokens."""

    def forced(self, most: int) -> list[int]:
        """Return the next tokens, at most `most`, that leave no choice."""


def constrain(state: ConstraintState, proposed: Sequence[int], rows: np.ndarray) -> tuple[list[int], bool]:
    """Store the tokens that may follow each prefix of `proposed` in rows (T, words), whose bits are all 1 before.

    Returns the proposals that may follow, and whether they are forced: forced tokens take the place of proposals.
    """
    forced = state.forced(len(rows) - 1)
    proposed, kept = forced or proposed[: len(rows) - 1], 0
    for row in rows:
        if state.is_complete:
            break
        row[:] = 0
        if kept < len(forced):
            row[forced[kept] >> 5] = 1 << (forced[kept] & 31)
        else:
            state.fill(row)
        if kept == len(proposed) or not state.accept(proposed[kept]):
            break
        kept += 1
    state.retract(kept)
    return list(proposed[:kept]), bool(forced)
