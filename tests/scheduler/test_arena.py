"""Arena layouts: no two intervals that are live at once overlap, with any block limit, shared or not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.hal.compile.scheduler.arena import ALIGNMENT, LiveInterval, peak_bytes, plan_arena, round_up

INTERVALS = st.lists(
    st.builds(
        lambda nbytes, first, length, front: LiveInterval(nbytes, first, first + length, front),
        st.integers(1, 5000),
        st.integers(-1, 30),
        st.integers(0, 12),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(INTERVALS, st.sampled_from([0, 1024, 4096]), st.booleans())
def test_intervals_live_at_the_same_step_never_overlap(intervals: list[LiveInterval], limit: int, shared: bool) -> None:
    layout = plan_arena(intervals, limit, shared=shared)
    spots = [(block, at, at + n.nbytes) for n, (block, at) in zip(intervals, layout.locations, strict=True)]
    for i, (block, start, stop) in enumerate(spots):
        interval = intervals[i]
        assert start % ALIGNMENT == 0
        assert stop <= layout.blocks[block]
        assert start == 0 or (shared and not interval.front)
        assert not limit or layout.blocks[block] <= max(limit, *(round_up(n.nbytes) for n in intervals))
        for j in range(i):
            other, other_start, other_stop = spots[j]
            overlaps = interval.first <= intervals[j].last and intervals[j].first <= interval.last
            if overlaps and block == other:
                assert shared
                assert stop <= other_start or other_stop <= start
    assert layout.nbytes >= peak_bytes(intervals)


def test_tensors_that_follow_one_another_share_memory() -> None:
    chain = [LiveInterval(1000, k, k + 1) for k in range(20)]
    assert plan_arena(chain).nbytes == peak_bytes(chain) == 2 * round_up(1000)
    assert plan_arena(chain, shared=False).blocks == (1024, 1024)


def test_temporaries_start_their_block_below_longer_lived_tensors() -> None:
    intervals = [LiveInterval(4096, 0, 10), LiveInterval(1024, 3, 3, front=True), LiveInterval(512, 7, 7, front=True)]
    layout = plan_arena(intervals)
    assert layout.nbytes == 4096 + 1024
    assert [offset for _, offset in layout.locations[1:]] == [0, 0]


def test_an_empty_arena_needs_no_memory() -> None:
    assert plan_arena([]).nbytes == 0
