"""Offsets in blocks of memory for tensors whose lifetimes are known: tensors that never live together share memory.

Source: greedy by size, Pisarchyk and Lee, "Efficient memory management for deep neural net inference", arXiv:2001.03288.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ALIGNMENT = 256
"""Bytes. Whole vectors of every dtype begin at multiples of it."""


class Need(NamedTuple):
    """Memory that is needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int
    front: bool = False
    """Whether it has to begin where its block begins, because it is passed as a handle without an offset."""


@dataclass(frozen=True, slots=True)
class Placement:
    """For each need its block and the offset in it, in bytes; and the blocks' sizes."""

    places: tuple[tuple[int, int], ...]
    blocks: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """All blocks together."""
        return sum(self.blocks)


def place(needs: Sequence[Need], limit: int = 0, *, shared: bool = True) -> Placement:
    """Places for `needs` in as little memory as greedy orders find, in blocks of at most `limit` bytes (0: no limit).

    A need larger than the limit gets a block of its own. Where blocks are not to be `shared` at one time, each need
    begins at its block's start, and those in a block follow one another.
    """
    least = peak(needs)
    best: Placement | None = None
    for order in _ORDERS:
        found = _placed(needs, sorted(range(len(needs)), key=lambda i: order(needs[i])), limit, shared)
        if best is None or found.nbytes < best.nbytes:
            best = found
        if best.nbytes <= least:
            break
    assert best is not None
    return best


def peak(needs: Sequence[Need]) -> int:
    """The most bytes that are needed at one step: no placement takes less."""
    return int(profile(needs).max(initial=0))


def profile(needs: Sequence[Need]) -> np.ndarray:
    """The bytes that are needed at each step, from the earliest on."""
    if not needs:
        return np.zeros(0, np.int64)
    start = min(n.first for n in needs)
    change = np.zeros(max(n.last for n in needs) - start + 2, np.int64)
    for need in needs:
        size = round_up(need.nbytes)
        change[need.first - start] += size
        change[need.last - start + 1] -= size
    return np.cumsum(change)[:-1]


def round_up(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# Needs that must begin a block come first: they find their places least easily.
_ORDERS: tuple[Callable[[Need], tuple[int, ...]], ...] = (
    lambda n: (not n.front, -n.nbytes, n.first),
    lambda n: (not n.front, n.first - n.last, -n.nbytes),
    lambda n: (not n.front, n.nbytes * (n.first - n.last - 1), n.first),
)


def _placed(needs: Sequence[Need], order: Sequence[int], limit: int, shared: bool) -> Placement:
    places: list[tuple[int, int]] = [(0, 0)] * len(needs)
    blocks: list[_Block] = []
    for i in order:
        need = needs[i]
        size = round_up(need.nbytes)
        rooms = [b.room(need, size, shared) for b in blocks]
        fitting = [k for k, room in enumerate(rooms) if room is not None and room + size <= blocks[k].nbytes]
        growing = [k for k, room in enumerate(rooms) if room is not None and (not limit or room + size <= limit)]
        if shared and not fitting and growing:
            # The block that grows least.
            fitting = [min(growing, key=lambda k: rooms[k] + size - blocks[k].nbytes)]  # type: ignore[operator]
        number = fitting[0] if fitting else len(blocks)
        if number == len(blocks):
            blocks.append(_Block(len(needs)))
        offset = (rooms[number] or 0) if fitting else 0
        blocks[number].take(need, size, offset)
        places[i] = (number, offset)
    return Placement(tuple(places), tuple(b.nbytes for b in blocks))


class _Block:
    """Taken parts, in arrays: a step has thousands of them, and each is compared with all others."""

    def __init__(self, most: int) -> None:
        self._parts = np.zeros((4, most), np.int64)
        self._count = 0
        self.nbytes = 0

    def room(self, need: Need, size: int, shared: bool) -> int | None:
        """The lowest offset that is free all the time, or None where there is none."""
        first, last, start, stop = self._parts[:, : self._count]
        together = (first <= need.last) & (last >= need.first)
        if not shared:
            return None if together.any() else 0
        if need.front:
            return None if (start[together] < size).any() else 0
        start, stop = start[together], stop[together]
        order = np.argsort(start, kind="stable")
        begins = start[order]
        # What lies before a part may reach beyond the part before it, so ends are taken as far as any got.
        ends = np.maximum.accumulate(np.concatenate(([0], stop[order])))
        gaps = np.flatnonzero(begins - ends[:-1] >= size)
        return int(ends[gaps[0]] if gaps.size else ends[-1])

    def take(self, need: Need, size: int, offset: int) -> None:
        self._parts[:, self._count] = (need.first, need.last, offset, offset + size)
        self._count += 1
        self.nbytes = max(self.nbytes, offset + size)
