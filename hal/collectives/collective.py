"""Description of a collective: its kind, its reduction and the division of elements among the participants.

Names and meanings follow MPI and NCCL. Every collective works on vectors. The *part* of participant i has `counts[i]` elements;
counts may differ and may be 0. The *whole* is the concatenation of all parts in order. Participants are numbered like the
members of the group.
"""

from __future__ import annotations

import enum
import itertools
from typing import NamedTuple

from polyhal.hal.errors import message


class Kind(enum.StrEnum):
    """Kind of a collective: it determines the participants with a source or target, and whether these are parts or wholes."""

    ALL_REDUCE = "all_reduce"
    """Every participant sends a whole and receives the reduced whole."""
    REDUCE = "reduce"
    """Every participant sends a whole, and the root receives the reduced whole."""
    BROADCAST = "broadcast"
    """The root sends a whole, and every participant receives it."""
    SCATTER = "scatter"
    """The root sends a whole, and every participant receives its part."""
    GATHER = "gather"
    """Every participant sends its part, and the root receives the whole."""
    ALL_GATHER = "all_gather"
    """Every participant sends its part and receives the whole."""
    REDUCE_SCATTER = "reduce_scatter"
    """Every participant sends a whole and receives its part of the reduced whole."""


class Reduction(enum.StrEnum):
    """Reduction of elements of several participants to one. Sums are taken in the order of the participants."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


_ROOTED_SOURCES = frozenset({Kind.BROADCAST, Kind.SCATTER})
_ROOTED_TARGETS = frozenset({Kind.REDUCE, Kind.GATHER})
_SOURCE_PARTS = frozenset({Kind.GATHER, Kind.ALL_GATHER})
_TARGET_PARTS = frozenset({Kind.SCATTER, Kind.REDUCE_SCATTER})


class Collective(NamedTuple):
    """One collective among `len(counts)` participants."""

    kind: Kind
    counts: tuple[int, ...]
    """Elements of each participant's part."""
    reduction: Reduction = Reduction.SUM
    """Reduction; ignored by other kinds than all-reduce, reduce and reduce-scatter."""
    root: int = 0
    """Root; ignored by other kinds than broadcast, scatter, gather and reduce."""
    temporary: bool = False
    """True if captured steps free the result between distant uses, and repeat the collective (`passes.regather`)."""

    @property
    def size(self) -> int:
        """Number of participants."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Number of elements of the whole."""
        return sum(self.counts)

    @property
    def starts(self) -> tuple[int, ...]:
        """Index in the whole of the first element of each part."""
        return (0, *itertools.accumulate(self.counts[:-1])) if self.counts else ()

    def source_size(self, member: int) -> int | None:
        """Return the number of elements that a participant sends; None if it has no source."""
        if self.kind in _ROOTED_SOURCES and member != self.root:
            return None
        return self.counts[member] if self.kind in _SOURCE_PARTS else self.total

    def target_size(self, member: int) -> int | None:
        """Return the number of elements that a participant receives; None if it has no target."""
        if self.kind in _ROOTED_TARGETS and member != self.root:
            return None
        return self.counts[member] if self.kind in _TARGET_PARTS else self.total

    def __str__(self) -> str:
        """Format the collective as it appears in graphs."""
        reduces = self.kind in (Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER)
        rooted = self.kind in _ROOTED_SOURCES | _ROOTED_TARGETS
        facts = [f"counts={list(self.counts)}"]
        facts += [f"reduction={self.reduction.value}"] if reduces else []
        facts += [f"root={self.root}"] if rooted else []
        facts += ["temporary"] if self.temporary else []
        return f"{self.kind.value}({', '.join(facts)})"


def divided(total: int, members: int) -> tuple[int, ...]:
    """Divide `total` elements as evenly as possible and return the counts; the first parts are the larger ones."""
    least, more = divmod(total, members)
    return tuple(least + (i < more) for i in range(members))


def reduction_of(name: str | Reduction, operation: str) -> Reduction:
    """Return the reduction called `name`. Raises ValueError that lists the names."""
    try:
        return Reduction(name)
    except ValueError:
        known = ", ".join(r.value for r in Reduction)
        raise ValueError(message(operation, f"unknown reduction {name!r}", expected=f"one of {known}")) from None
