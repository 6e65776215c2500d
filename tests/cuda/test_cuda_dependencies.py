"""Dependencies between launches, from the bytes that they use, against execution in every order that they allow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.backends.cuda.dependencies import ByteRange, MemoryAccess, SlotAliases, access_of, predecessors
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import BindingSlot

_BYTES = 24


def reads(start: int, stop: int) -> ByteRange:
    return ByteRange(start, stop, False)


def writes(start: int, stop: int) -> ByteRange:
    return ByteRange(start, stop, True)


HAND_WRITTEN = {
    "a read after a write": ([[writes(0, 8)], [reads(0, 8)]], [(), (0,)]),
    "a write after a read": ([[reads(0, 8)], [writes(0, 8)]], [(), (0,)]),
    "a write after a write": ([[writes(0, 8)], [writes(0, 8)]], [(), (0,)]),
    "reads of equal bytes": ([[reads(0, 8)], [reads(0, 8)]], [(), ()]),
    "neighbouring bytes": ([[writes(0, 8)], [writes(8, 16)], [reads(4, 12)]], [(), (), (0, 1)]),
    "one byte in common": ([[writes(0, 9)], [reads(8, 16)]], [(), (0,)]),
    "an update in place": ([[writes(0, 8)], [reads(0, 8), writes(0, 8)], [reads(0, 8)]], [(), (0,), (1,)]),
    "a chain": ([[writes(0, 4)], [reads(0, 4), writes(4, 8)], [reads(0, 8)]], [(), (0,), (1,)]),
    "branches that meet": (
        [[writes(0, 4)], [reads(0, 4), writes(4, 8)], [reads(0, 4), writes(8, 12)], [reads(0, 12)]],
        [(), (0,), (0,), (1, 2)],
    ),
    "memory used again": (
        [[writes(0, 4)], [reads(0, 4), writes(4, 8)], [writes(0, 4)], [reads(0, 4)]],
        [(), (0,), (1,), (2,)],
    ),
    "a part that is written again": (
        [[writes(0, 12)], [writes(4, 8)], [reads(0, 4)], [reads(0, 12)]],
        [(), (0,), (0,), (1,)],
    ),
    "no bytes": ([[writes(0, 8)], [reads(4, 4)], []], [(), (), ()]),
}


@pytest.mark.parametrize("program", HAND_WRITTEN)
def test_dependencies_of_small_programs(program: str) -> None:
    launches, expected = HAND_WRITTEN[program]
    assert predecessors(launches) == expected


def test_launches_in_order_follow_each_other_and_the_reduction_counts_that() -> None:
    independent = [[writes(4 * i, 4 * i + 4)] for i in range(4)]
    assert predecessors(independent, {0, 2, 3}) == [(), (), (0,), (2,)]
    launches = [[writes(0, 4)], [writes(4, 8)], [reads(0, 8)]]
    assert predecessors(launches, {0, 1, 2}) == [(), (0,), (1,)]


ranges = st.builds(
    lambda start, size, written: ByteRange(start, min(start + size, _BYTES), written),
    st.integers(0, _BYTES - 1),
    st.integers(0, 8),
    st.booleans(),
)
programs = st.lists(st.lists(ranges, max_size=4), max_size=12)


def run(launches: Sequence[Sequence[ByteRange]], order: Sequence[int]) -> np.ndarray:
    """Execute launches that write numbers computed from their own index and from all bytes that they use."""
    memory = np.arange(_BYTES, dtype=np.uint64)
    for i in order:
        used = [memory[r.start : r.stop].sum(dtype=np.uint64) for r in launches[i]]
        value = np.uint64(hash((i, *map(int, used))) & 0xFFFFFFFF)
        for r in launches[i]:
            if r.writes:
                memory[r.start : r.stop] = value
    return memory


def any_order(before: Sequence[tuple[int, ...]], choice: random.Random) -> list[int]:
    """Return a random topological order."""
    waiting, order = set(range(len(before))), list[int]()
    while waiting:
        order.append(choice.choice(sorted(i for i in waiting if waiting.isdisjoint(before[i]))))
        waiting.remove(order[-1])
    return order


@settings(max_examples=150, deadline=None)
@given(programs, st.randoms(use_true_random=False))
def test_every_order_that_the_graph_allows_computes_what_program_order_computes(
    launches: list[list[ByteRange]], choice: random.Random
) -> None:
    expected = run(launches, range(len(launches)))
    for _ in range(4):
        order = any_order(predecessors(launches), choice)
        np.testing.assert_array_equal(run(launches, order), expected)


def conflict(a: Sequence[ByteRange], b: Sequence[ByteRange]) -> bool:
    return any((x.writes or y.writes) and max(x.start, y.start) < min(x.stop, y.stop) for x in a for y in b)


def reachable(before: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """Return all launches that each launch follows, directly or not."""
    found: list[set[int]] = []
    for direct in before:
        found.append(set(direct).union(*(found[k] for k in direct)))
    return found


@settings(max_examples=150, deadline=None)
@given(programs, st.sets(st.integers(0, 11)))
def test_the_graph_is_the_transitive_reduction_of_all_conflicts(
    launches: list[list[ByteRange]], in_order: set[int]
) -> None:
    before = predecessors(launches, in_order)
    needed = [
        tuple(k for k in range(i) if conflict(launches[k], launches[i]) or {k, i} <= in_order)
        for i in range(len(launches))
    ]
    closure = reachable(before)
    assert closure == reachable(needed)
    for direct in before:
        assert not any(k in closure[other] for k in direct for other in direct)


def memory(address: int, nbytes: int = 64) -> Any:
    return SimpleNamespace(address=address, nbytes=nbytes)


def bytes_of(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> tuple[int, int]:
    handle = memory(1000)
    found = access_of(Ref(handle, Spec(dtypes.float32, shape, strides), offset), writes=False).located()
    return found.start - 1000, found.stop - 1000


def test_bytes_of_operands() -> None:
    assert bytes_of((2, 3), (3, 1), 2) == (8, 32)
    assert bytes_of((2, 3), (8, 2), 0) == (0, 4 * (8 + 4 + 1))
    assert bytes_of((4,), (-1,), 3) == (0, 16)
    assert bytes_of((5,), (0,), 1) == (4, 8)
    start, stop = bytes_of((0, 3), (3, 1), 7)
    assert start == stop


def bound(address: int, offset: int = 0) -> BindingSlot:
    slot = BindingSlot()
    slot.handle, slot.offset = memory(address), offset
    return slot


def test_a_slot_bound_to_memory_of_other_operands_changes_the_dependencies() -> None:
    x, y, out = bound(1000), bound(2000), bound(3000)
    fixed = memory(5000)
    spec = contiguous(dtypes.float32, (4,))
    launches = [
        [access_of(Ref(x, spec, 0), writes=False), access_of(Ref(y, spec, 0), writes=False)],
        [access_of(Ref(out, spec, 0), writes=True), MemoryAccess(fixed, 0, 16, False)],
    ]

    def moved(slot: BindingSlot, address: int, offset: int = 0) -> bool:
        slot.handle, slot.offset = memory(address), offset
        return aliases.changed([slot])

    aliases = SlotAliases(launches)
    assert not moved(out, 4000)
    assert not moved(x, 2000)  # both are only read
    assert not moved(x, 5000)  # only read, too
    assert moved(out, 5008)
    assert not moved(out, 5016)
    assert moved(out, 2000, offset=3)
    assert not moved(out, 2000, offset=4)
    assert not aliases.changed([bound(2000)])  # a slot of other launches
    shared = SlotAliases([[access_of(Ref(out, spec, 0), writes=True), access_of(Ref(y, spec, 4), writes=False)]])
    out.handle, out.offset = memory(9000), 0
    assert shared.changed([out])  # no longer the memory of y
