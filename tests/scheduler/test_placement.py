"""Places for tensors: nothing that lives at one time overlaps, in blocks of any limit, shared or not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.hal.scheduler.arena import ALIGNMENT, Need, peak, place, round_up

NEEDS = st.lists(
    st.builds(
        lambda nbytes, first, length, front: Need(nbytes, first, first + length, front),
        st.integers(1, 5000),
        st.integers(-1, 30),
        st.integers(0, 12),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(NEEDS, st.sampled_from([0, 1024, 4096]), st.booleans())
def test_needs_that_live_together_never_overlap(needs: list[Need], limit: int, shared: bool) -> None:
    placement = place(needs, limit, shared=shared)
    spots = [(block, at, at + n.nbytes) for n, (block, at) in zip(needs, placement.places, strict=True)]
    for i, (block, start, stop) in enumerate(spots):
        need = needs[i]
        assert start % ALIGNMENT == 0
        assert stop <= placement.blocks[block]
        assert start == 0 or (shared and not need.front)
        assert not limit or placement.blocks[block] <= max(limit, *(round_up(n.nbytes) for n in needs))
        for j in range(i):
            other, other_start, other_stop = spots[j]
            together = need.first <= needs[j].last and needs[j].first <= need.last
            if together and block == other:
                assert shared
                assert stop <= other_start or other_stop <= start
    assert placement.nbytes >= peak(needs)


def test_tensors_that_follow_one_another_share_memory() -> None:
    chain = [Need(1000, k, k + 1) for k in range(20)]
    assert place(chain).nbytes == peak(chain) == 2 * round_up(1000)
    assert place(chain, shared=False).blocks == (1024, 1024)


def test_temporaries_begin_their_block_beneath_tensors_that_live_longer() -> None:
    needs = [Need(4096, 0, 10), Need(1024, 3, 3, front=True), Need(512, 7, 7, front=True)]
    placement = place(needs)
    assert placement.nbytes == 4096 + 1024
    assert [offset for _, offset in placement.places[1:]] == [0, 0]


def test_nothing_needs_nothing() -> None:
    assert place([]).nbytes == 0
