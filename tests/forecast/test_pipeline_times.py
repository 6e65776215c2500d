"""Times of pipelines against the closed form for equal stages, and bounds for others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.forecast.pipeline_times import StageTimes, finish_times
from polyhal.forecast.stage import _balanced


@given(st.integers(1, 8), st.integers(1, 40), st.floats(0.1, 10), st.floats(0.1, 10))
@settings(max_examples=40)
def test_equal_stages_take_one_micro_batch_more_for_each_stage(
    stages: int, passes: int, forward: float, backward: float
) -> None:
    """Narayanan et al., arXiv:2104.04473, section 2.2: a bubble of (p - 1) (f + b)."""
    ends = finish_times([StageTimes(forward, backward)] * stages, passes, 0.0)
    assert max(ends) == pytest.approx((passes + stages - 1) * (forward + backward))
    assert ends[0] == max(ends)


@given(st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.1, 5)), min_size=1, max_size=5), st.integers(1, 30))
@settings(max_examples=40)
def test_a_pipeline_takes_at_least_its_slowest_stage(times: list[tuple[float, float]], passes: int) -> None:
    stages = [StageTimes(*t) for t in times]
    ends = finish_times(stages, passes, 0.0)
    slowest = max(f + b for f, b in times)
    assert max(ends) >= passes * slowest * (1 - 1e-9)
    assert max(ends) <= (passes * slowest + sum(f + b for f, b in times)) * (1 + 1e-9)
    slower = finish_times(stages, passes, 0.5)
    assert all(late >= early * (1 - 1e-9) for late, early in zip(slower, ends, strict=True))


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12), st.data())
def test_layers_are_divided_so_that_the_slowest_stage_is_fastest(costs: list[float], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(costs)))
    ranges = _balanced(costs, parts)
    assert len(ranges) == parts
    assert [n for start, stop in ranges for n in range(start, stop)] == list(range(len(costs)))
    assert all(start < stop for start, stop in ranges)
    slowest = max(sum(costs[start:stop]) for start, stop in ranges)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(costs) - 1)), max_size=parts - 1)) - {len(costs)})
    ends = [*cuts, len(costs)]
    other = max(sum(costs[a:b]) for a, b in zip([0, *cuts], ends, strict=True))
    assert slowest <= other * (1 + 1e-6)
