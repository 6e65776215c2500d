"""The allocator of device memory, compared with a model that lists every cell; page faults; pictures."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhal.backends.sim.address_space import ALIGNMENT, BASE, AddressSpace, PageFaultError
from polyhal.hal.errors import BackendError, OutOfMemoryError

CELLS = 24
SIZE = CELLS * ALIGNMENT


def memory(size: int = SIZE) -> AddressSpace:
    return AddressSpace(size, size)


class Model:
    """First fit over a list of cells. Each cell belongs to an allocation or is free."""

    def __init__(self) -> None:
        self.cells: list[int | None] = [None] * CELLS

    def allocate(self, nbytes: int) -> int | None:
        count = -(-nbytes // ALIGNMENT)
        for start in range(CELLS - count + 1):
            if all(c is None for c in self.cells[start : start + count]):
                address = BASE + start * ALIGNMENT
                self.cells[start : start + count] = [address] * count
                return address
        return None

    def release(self, address: int) -> None:
        self.cells = [None if c == address else c for c in self.cells]

    def largest_free(self) -> int:
        runs = "".join("." if c is None else "#" for c in self.cells).split("#")
        return max(map(len, runs)) * ALIGNMENT


steps = st.lists(st.one_of(st.integers(1, SIZE // 2), st.floats(0, 0.999)), max_size=40)
"""An integer allocates as many bytes; a fraction selects a live allocation to release, by relative index."""


@given(steps)
def test_the_allocator_agrees_with_the_model(program: list[int | float]) -> None:
    space, model, live = memory(), Model(), []
    for step in program:
        if isinstance(step, int):
            expected = model.allocate(step)
            if expected is None:
                with pytest.raises(OutOfMemoryError):
                    space.allocate(step)
            else:
                assert space.allocate(step).address == expected
                live.append(expected)
        elif live:
            address = live.pop(int(step * len(live)))
            space.release(address)
            model.release(address)
        assert space.available == model.cells.count(None) * ALIGNMENT
        assert space.largest_free == model.largest_free()
        assert [a.address for a in space.live()] == sorted(live)
        ranges = space.free_ranges()
        assert all(a + n < b for (a, n), (b, _) in itertools.pairwise(ranges)), "neighbours were not merged"


def test_fragmentation_prevents_a_large_allocation() -> None:
    space = memory(8 * ALIGNMENT)
    blocks = [space.allocate(ALIGNMENT) for _ in range(8)]
    assert space.fragmentation == 0
    for block in blocks[::2]:
        space.release(block.address)
    assert (space.available, space.largest_free, space.fragmentation) == (4 * ALIGNMENT, ALIGNMENT, 0.75)
    assert space.picture(8).startswith("[.#.#.#.#]")
    with pytest.raises(OutOfMemoryError, match="1024 are free, at most 256 contiguous"):
        space.allocate(2 * ALIGNMENT)
    space.release(blocks[1].address)
    assert space.largest_free == 3 * ALIGNMENT


def test_the_largest_allocation_is_limited() -> None:
    space = AddressSpace(SIZE, 1000)
    with pytest.raises(OutOfMemoryError, match="1001 bytes requested; the largest possible allocation is 1000 bytes"):
        space.allocate(1001)


def test_addresses_are_looked_up_inside_of_allocations() -> None:
    space = memory()
    first, second = space.allocate(300), space.allocate(100)
    assert space.find(second.address + 40, 60) == (second, 40)
    assert space.find(first.address, 300) == (first, 0)


@pytest.mark.parametrize(
    ("offset", "nbytes", "problem"),
    [
        (290, 20, "20 bytes from this address exceed the end"),
        (2 * ALIGNMENT, 4, "allocation 0 of 100 bytes was released before"),
        (8 * ALIGNMENT, 4, "the address was never allocated"),
        (-ALIGNMENT, 4, "not in device memory"),
    ],
)
def test_wild_and_released_addresses_fault(offset: int, nbytes: int, problem: str) -> None:
    space = memory()
    space.allocate(300)
    space.release(space.allocate(100).address)
    with pytest.raises(PageFaultError, match=problem) as caught:
        space.find(BASE + offset, nbytes)
    assert caught.value.address == BASE + offset


def test_memory_is_released_once() -> None:
    space = memory()
    address = space.allocate(8).address
    space.release(address)
    with pytest.raises(BackendError, match="was released before"):
        space.release(address)
    with pytest.raises(BackendError, match="no allocation starts at"):
        space.release(address + 1)


def test_memory_without_storage_costs_the_host_nothing() -> None:
    space = AddressSpace(1 << 47, 1 << 46, backed=False)
    assert space.allocate(1 << 45).storage is None
    assert space.available == (1 << 47) - (1 << 45)
