"""Rows of tokens of one length, made of examples."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from polyhal.finetune.records import Example

IGNORED = -100
"""Target of a token whose successor is not learned."""


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Token ids, targets and numbers of examples, each (rows, context) of int32; numbers are 0 at padding."""

    ids: np.ndarray
    targets: np.ndarray
    examples: np.ndarray
    packed: bool
    """True if a row holds several examples, so that attention needs a mask."""
    cut: int
    """Number of examples that were cut to fit."""
    longest: int = 0
    """Tokens of the longest example."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def filled(self) -> float:
        """Share of tokens that are not padding."""
        return float((self.examples > 0).mean())


def arrange(examples: Sequence[Example], context: int, *, packing: bool = True, split: bool = False) -> TokenRows:
    """Arrange examples in rows of `context` tokens, several in a row with `packing` (first fit, longest first).

    With `split`, a long example continues in further rows; otherwise its beginning is used.
    """
    pieces, cut = _pieces(examples, context, split)
    longest = max((len(e.ids) for e in examples), default=0)
    places = _packed(pieces, context) if packing else [[i] for i in range(len(pieces))]
    shape = (len(places), context)
    ids, targets, numbers = np.zeros(shape, np.int32), np.full(shape, IGNORED, np.int32), np.zeros(shape, np.int32)
    for row, members in enumerate(places):
        start = 0
        for number, member in enumerate(members, 1):
            piece = pieces[member]
            stop = start + len(piece.ids)
            ids[row, start:stop] = piece.ids
            numbers[row, start:stop] = number
            following = np.where(piece.learned[1:], piece.ids[1:], IGNORED)
            targets[row, start : stop - 1] = following
            start = stop
    return TokenRows(ids, targets, numbers, any(len(members) > 1 for members in places), cut, longest)


def _pieces(examples: Iterable[Example], context: int, split: bool) -> tuple[list[Example], int]:
    pieces, cut = [], 0
    for example in examples:
        length = len(example.ids)
        cut += length > context and not split
        # Neighbouring pieces share a token: the last target of one is the first input of the next.
        for start in range(0, max(length - 1, 1), context - 1) if split else (0,):
            piece = Example(example.ids[start : start + context], example.learned[start : start + context])
            if any(piece.learned[1:]):
                pieces.append(piece)
    return pieces, cut


def _packed(pieces: Sequence[Example], context: int) -> list[list[int]]:
    """Return the pieces of each row: each piece, longest first, goes to the fullest row that has room for it."""
    rows: list[list[int]] = []
    by_room: dict[int, list[int]] = {}
    for i in sorted(range(len(pieces)), key=lambda i: (-len(pieces[i].ids), i)):
        length = len(pieces[i].ids)
        room = min((r for r, found in by_room.items() if r >= length and found), default=None)
        if room is None:
            rows.append([])
            row, room = len(rows) - 1, context
        else:
            row = heapq.heappop(by_room[room])
        rows[row].append(i)
        heapq.heappush(by_room.setdefault(room - length, []), row)
    return rows
