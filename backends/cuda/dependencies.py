"""Dependencies between recorded launches, by the bytes of memory that they read and write."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.layout import Ref
from polyhal.hal.protocol import BindingSlot


class MemoryAccess(NamedTuple):
    """Bytes that a launch may read, or read and write: from `start` to `stop`, relative to an address."""

    memory: Any
    """Allocation, or the binding slot of one."""
    start: int
    stop: int
    writes: bool
    itemsize: int = 1
    """Bytes of the elements that a slot's offset counts."""

    def located(self) -> ByteRange:
        """Return the addresses, of a slot at its current binding."""
        x = self.memory
        base = x.handle.address + x.offset * self.itemsize if isinstance(x, BindingSlot) else x.address
        return ByteRange(base + self.start, base + self.stop, self.writes)


class ByteRange(NamedTuple):
    """Addresses from `start` to `stop` that a launch reads, or may also write."""

    start: int
    stop: int
    writes: bool


def access_of(ref: Ref, *, writes: bool) -> MemoryAccess:
    """Return the access to all elements of an operand, and to the bytes between them."""
    _, shape, strides, _ = ref.spec
    itemsize = ref.spec.dtype.itemsize
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first = ref.offset + sum(s for s in steps if s < 0)
    last = ref.offset + sum(s for s in steps if s > 0)
    stop = last + 1 if all(shape) else first
    return MemoryAccess(ref.handle, first * itemsize, stop * itemsize, writes, itemsize)


def predecessors(launches: Sequence[Sequence[ByteRange]], in_order: Collection[int] = ()) -> list[tuple[int, ...]]:
    """Return the launches that each launch has to follow directly: the transitive reduction of the dependencies.

    A launch depends on an earlier one if one of them writes bytes that the other reads or writes. The launches `in_order` also
    follow each other.
    """
    found: list[tuple[int, ...]] = []
    before: list[int] = []
    """All launches in front of each launch, as bits."""
    users = _Users()
    last: int | None = None
    for i, ranges in enumerate(launches):
        needed: set[int] = set()
        for r in ranges:
            needed |= users.add(i, r)
        needed.discard(i)
        if i in in_order:
            if last is not None:
                needed.add(last)
            last = i
        known, direct = 0, []
        for k in sorted(needed, reverse=True):
            if not known >> k & 1:
                direct.append(k)
                known |= 1 << k | before[k]
        found.append(tuple(reversed(direct)))
        before.append(known)
    return found


class _Users:
    """The last writer of each byte, and its readers since, for sections of memory with the same users."""

    def __init__(self) -> None:
        self._bounds: list[int] = [0]
        """First address of each section."""
        self._sections: list[tuple[int | None, frozenset[int]]] = [(None, frozenset())]

    def add(self, launch: int, used: ByteRange) -> set[int]:
        """Note an access. Returns the launches that it has to follow, which may include the launch itself."""
        needed: set[int] = set()
        if used.start >= used.stop:
            return needed
        first, end = self._split(used.start), self._split(used.stop)
        for k in range(first, end):
            writer, readers = self._sections[k]
            if writer is not None:
                needed.add(writer)
            if used.writes:
                needed |= readers
            else:
                self._sections[k] = writer, readers | {launch}
        if used.writes:
            self._bounds[first:end] = [used.start]
            self._sections[first:end] = [(launch, frozenset())]
        return needed

    def _split(self, address: int) -> int:
        """Return the section that begins at an address, after a division of the section around it if there is none."""
        k = bisect_left(self._bounds, address)
        if k == len(self._bounds) or self._bounds[k] != address:
            self._bounds.insert(k, address)
            self._sections.insert(k, self._sections[k - 1])
        return k


@dataclass(slots=True)
class _Row:
    """A slot's row in the table of ranges, and the accesses through the slot."""

    number: int
    accesses: list[MemoryAccess]

    def located(self) -> ByteRange:
        """Return the range of all accesses at the slot's current binding."""
        ranges = [a.located() for a in self.accesses]
        return ByteRange(min(r.start for r in ranges), max(r.stop for r in ranges), any(r.writes for r in ranges))


class SlotAliases:
    """Finds binding slots whose memory overlaps memory of other operands, where one of both is written.

    Dependencies found for one binding of a slot are valid for another one if neither overlaps.
    """

    def __init__(self, launches: Sequence[Sequence[MemoryAccess]]) -> None:
        """All slots must be bound."""
        self._rows: dict[BindingSlot, _Row] = {}
        fixed: list[ByteRange] = []
        for access in (a for accesses in launches for a in accesses if a.start < a.stop):
            if isinstance(access.memory, BindingSlot):
                row = self._rows.setdefault(access.memory, _Row(len(self._rows), []))
                row.accesses.append(access)
            else:
                fixed.append(access.located())
        table = [row.located() for row in self._rows.values()] + list(dict.fromkeys(fixed))
        self._table = np.array(table, np.int64).reshape(-1, 3).T
        self._shared = {slot for slot in self._rows if self._overlaps(slot)}

    def changed(self, rebound: Collection[BindingSlot]) -> bool:
        """Return whether the new memory of a slot, or its old one, overlaps memory of other operands."""
        slots = [slot for slot in rebound if slot in self._rows]
        for slot in slots:
            row = self._rows[slot]
            self._table[:, row.number] = row.located()
        return any(slot in self._shared or self._overlaps(slot) for slot in slots)

    def _overlaps(self, slot: BindingSlot) -> bool:
        number = self._rows[slot].number
        starts, stops, writes = self._table
        overlapping = (starts < stops[number]) & (stops > starts[number])
        overlapping[number] = False
        return bool(overlapping.any() if writes[number] else (overlapping & (writes > 0)).any())


__all__ = ["ByteRange", "MemoryAccess", "SlotAliases", "access_of", "predecessors"]
