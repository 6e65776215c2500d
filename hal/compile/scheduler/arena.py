"""Arena planning: offsets in memory blocks for tensors with known live intervals. Disjoint intervals may share memory.

Source: greedy by size, Pisarchyk and Lee, "Efficient memory management for deep neural net inference", arXiv:2001.03288.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ALIGNMENT = 256
"""Alignment in bytes, a multiple of the widest vector of every dtype."""


class LiveInterval(NamedTuple):
    """Bytes that are live from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int
    front: bool = False
    """True if they must start where their block starts, because they are passed as a handle without an offset."""


@dataclass(frozen=True, slots=True)
class ArenaLayout:
    """Block and offset of each interval, and sizes of the blocks, in bytes."""

    locations: tuple[tuple[int, int], ...]
    """(block, offset) of each interval."""
    blocks: tuple[int, ...]
    """Size of each block."""

    @property
    def nbytes(self) -> int:
        """Total bytes of all blocks."""
        return sum(self.blocks)


def plan_arena(intervals: Sequence[LiveInterval], limit: int = 0, *, shared: bool = True) -> ArenaLayout:
    """Return the smallest layout found by several greedy orders, in blocks of at most `limit` bytes (0: no limit).

    An interval larger than the limit has its own block. Without `shared`, a block stores one interval at a time, at offset 0.
    """
    least = peak_bytes(intervals)
    best: ArenaLayout | None = None
    for order in _ORDERS:
        layout = _packed(intervals, sorted(range(len(intervals)), key=lambda i: order(intervals[i])), limit, shared)
        if best is None or layout.nbytes < best.nbytes:
            best = layout
        if best.nbytes <= least:
            break
    return best or ArenaLayout((), ())


def peak_bytes(intervals: Sequence[LiveInterval]) -> int:
    """Return the maximum of live bytes over all steps: a lower bound on every layout."""
    return int(usage(intervals).max(initial=0))


def usage(intervals: Sequence[LiveInterval]) -> np.ndarray:
    """Return the live bytes at each step, starting with the earliest `first`."""
    if not intervals:
        return np.zeros(0, np.int64)
    start = min(i.first for i in intervals)
    change = np.zeros(max(i.last for i in intervals) - start + 2, np.int64)
    for interval in intervals:
        size = round_up(interval.nbytes)
        change[interval.first - start] += size
        change[interval.last - start + 1] -= size
    return np.cumsum(change)[:-1]


def round_up(nbytes: int) -> int:
    """Round up to a multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# Intervals that must start a block come first: they are the hardest to place.
_ORDERS: tuple[Callable[[LiveInterval], tuple[int, ...]], ...] = (
    lambda i: (not i.front, -i.nbytes, i.first),
    lambda i: (not i.front, i.first - i.last, -i.nbytes),
    lambda i: (not i.front, i.nbytes * (i.first - i.last - 1), i.first),
)


def _packed(intervals: Sequence[LiveInterval], order: Sequence[int], limit: int, shared: bool) -> ArenaLayout:
    locations: list[tuple[int, int]] = [(0, 0)] * len(intervals)
    blocks: list[_ArenaBlock] = []
    for i in order:
        interval = intervals[i]
        size = round_up(interval.nbytes)
        offsets = [b.free_offset(interval, size, shared) for b in blocks]
        free = [(k, offset) for k, offset in enumerate(offsets) if offset is not None]
        fitting = [(k, offset) for k, offset in free if offset + size <= blocks[k].nbytes]
        if shared and not fitting:
            growable = [(k, offset) for k, offset in free if not limit or offset + size <= limit]
            # Prefer the block that grows least.
            fitting = sorted(growable, key=lambda pair: pair[1] + size - blocks[pair[0]].nbytes)
        if not fitting:
            blocks.append(_ArenaBlock(len(intervals)))
        number, offset = fitting[0] if fitting else (len(blocks) - 1, 0)
        blocks[number].take(interval, size, offset)
        locations[i] = (number, offset)
    return ArenaLayout(tuple(locations), tuple(b.nbytes for b in blocks))


class _ArenaBlock:
    """Intervals of a block, in arrays: a step has thousands of intervals, and each is compared with all others."""

    def __init__(self, capacity: int) -> None:
        self._taken = np.zeros((4, capacity), np.int64)
        """Rows of first steps, last steps, starts and ends of all intervals."""
        self._count = 0
        self.nbytes = 0

    def free_offset(self, interval: LiveInterval, size: int, shared: bool) -> int | None:
        """Return the lowest offset that is free during the whole interval, or None."""
        first, last, start, stop = self._taken[:, : self._count]
        overlapping = (first <= interval.last) & (last >= interval.first)
        if not shared:
            return None if overlapping.any() else 0
        if interval.front:
            return None if (start[overlapping] < size).any() else 0
        start, stop = start[overlapping], stop[overlapping]
        order = np.argsort(start, kind="stable")
        starts = start[order]
        # An interval may extend beyond the next one, so a gap begins at the running maximum of the ends.
        ends = np.maximum.accumulate(np.concatenate(([0], stop[order])))
        gaps = np.flatnonzero(starts - ends[:-1] >= size)
        return int(ends[gaps[0]] if gaps.size else ends[-1])

    def take(self, interval: LiveInterval, size: int, offset: int) -> None:
        self._taken[:, self._count] = (interval.first, interval.last, offset, offset + size)
        self._count += 1
        self.nbytes = max(self.nbytes, offset + size)
