"""What a collective does: its kind, its reduction and how the elements are divided among the members of a group.

The names and meanings are MPI's and NCCL's. Every collective works on vectors. A *part* is what belongs to one member: member i
has `counts[i]` elements, which may differ and may be 0, and a *whole* is the parts of all members in order.
"""

from __future__ import annotations

import enum
import itertools
from typing import NamedTuple

from polyhal.hal.errors import message


class Kind(enum.StrEnum):
    """Which members have a source and a target, and whether these are parts or wholes."""

    ALL_REDUCE = "all_reduce"
    """Every member: a whole to the reduced whole."""
    REDUCE = "reduce"
    """Every member gives a whole, and the root gets the reduced whole."""
    BROADCAST = "broadcast"
    """The root gives a whole, and every member gets it."""
    SCATTER = "scatter"
    """The root gives a whole, and every member gets its part."""
    GATHER = "gather"
    """Every member gives its part, and the root gets the whole."""
    ALL_GATHER = "all_gather"
    """Every member gives its part and gets the whole."""
    REDUCE_SCATTER = "reduce_scatter"
    """Every member gives a whole and gets its part of the reduced whole."""


class Reduction(enum.StrEnum):
    """How elements of several members become one. Sums are taken in the order of the members."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


_ROOTED_SOURCES = frozenset({Kind.BROADCAST, Kind.SCATTER})
_ROOTED_TARGETS = frozenset({Kind.REDUCE, Kind.GATHER})
_SOURCE_PARTS = frozenset({Kind.GATHER, Kind.ALL_GATHER})
_TARGET_PARTS = frozenset({Kind.SCATTER, Kind.REDUCE_SCATTER})


class Collective(NamedTuple):
    """One collective among `len(counts)` members."""

    kind: Kind
    counts: tuple[int, ...]
    """Elements of each member's part."""
    reduction: Reduction = Reduction.SUM
    """For the kinds that reduce."""
    root: int = 0
    """For the kinds that have one."""
    temporary: bool = False
    """Whether captured steps drop what is got between distant uses, and carry the collective out again."""

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Elements of the whole."""
        return sum(self.counts)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each member's part begins in the whole."""
        return (0, *itertools.accumulate(self.counts[:-1])) if self.counts else ()

    def source_size(self, member: int) -> int | None:
        """Elements that a member gives; None if it gives nothing."""
        if self.kind in _ROOTED_SOURCES and member != self.root:
            return None
        return self.counts[member] if self.kind in _SOURCE_PARTS else self.total

    def target_size(self, member: int) -> int | None:
        """Elements that a member gets; None if it gets nothing."""
        if self.kind in _ROOTED_TARGETS and member != self.root:
            return None
        return self.counts[member] if self.kind in _TARGET_PARTS else self.total

    def __str__(self) -> str:
        """As it appears in graphs."""
        reduces = self.kind in (Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER)
        rooted = self.kind in _ROOTED_SOURCES | _ROOTED_TARGETS
        facts = [f"counts={list(self.counts)}"]
        facts += [f"reduction={self.reduction.value}"] if reduces else []
        facts += [f"root={self.root}"] if rooted else []
        facts += ["temporary"] if self.temporary else []
        return f"{self.kind.value}({', '.join(facts)})"


def divided(total: int, members: int) -> tuple[int, ...]:
    """Counts of `total` elements divided as evenly as possible; the first parts are the larger ones."""
    least, more = divmod(total, members)
    return tuple(least + (i < more) for i in range(members))


def reduction_of(name: str | Reduction, operation: str) -> Reduction:
    """The reduction called `name`. Raises ValueError that lists the names."""
    try:
        return Reduction(name)
    except ValueError:
        known = ", ".join(r.value for r in Reduction)
        raise ValueError(message(operation, f"there is no reduction {name!r}", expected=f"one of {known}")) from None
