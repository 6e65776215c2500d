"""Speculative decoding: tokens that are proposed cheaply, so that one step of the model checks several of them.

The step draws a token at each position with the random numbers that single steps would use, and keeps proposals up to the first
one that differs from the drawn token, which takes its place. The text is therefore the text of single steps, whatever is
proposed, except for rounding of products with more rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from polyhal.generation.batch_state import BatchState
from polyhal.generation.pace import WIDTHS
from polyhal.generation.request import TokenStream
from polyhal.generation.slots import SequenceSlot

_MOST_ROWS = 64
"""Maximum number of tokens that a step processes, beyond which products are slower than for one token per sequence."""
_LONGEST_GRAM = 3


class Proposer(Protocol):
    """Proposes the next tokens of sequences."""

    def propose(self, wanted: Mapping[int, int], slots: list[SequenceSlot], state: BatchState) -> dict[int, list[int]]:
        """Return up to `wanted[i]` tokens after the text of each slot i."""


def most_proposals(slots: int) -> int:
    """Return the largest number of proposals per sequence for a batch."""
    return max(width for width in WIDTHS if not width or (width + 1) * slots <= _MOST_ROWS)


def step_width(proposals: Mapping[int, list[int]]) -> int:
    """Return the number of proposals that a step has to check."""
    most = max(map(len, proposals.values()), default=0)
    return next(width for width in WIDTHS if width >= most)


@dataclass(slots=True)
class _Index:
    """Places after each sequence of few tokens in a text."""

    stream: TokenStream | None = None
    ends: dict[tuple[int, ...], int] = field(default_factory=dict)
    done: int = 0


class PromptLookup:
    """Proposes the tokens that followed the last few ones when these occurred before, in the prompt or the text."""

    def __init__(self) -> None:
        self._indices: dict[int, _Index] = {}

    def propose(self, wanted: Mapping[int, int], slots: list[SequenceSlot], state: BatchState) -> dict[int, list[int]]:
        """Return the tokens after the last occurrence of the longest possible sequence of tokens."""
        return {i: self._find(slots[i], most) for i, most in wanted.items()}

    def _find(self, slot: SequenceSlot, most: int) -> list[int]:
        index, ids = self._indices.setdefault(slot.index, _Index()), slot.ids
        if index.stream is not slot.stream or index.done > len(ids):
            index.stream, index.done = slot.stream, 0
            index.ends.clear()
        for end in range(max(index.done, 1), len(ids)):
            for size in range(2, min(_LONGEST_GRAM, end) + 1):
                index.ends[tuple(ids[end - size : end])] = end
        index.done = len(ids)
        for size in range(min(_LONGEST_GRAM, len(ids)), 1, -1):
            if found := index.ends.get(tuple(ids[-size:])):
                proposed = ids[found : found + most]
                while len(proposed) < most:  # the text repeats itself
                    proposed.append(proposed[-(len(ids) - found)])
                return proposed
        return []
