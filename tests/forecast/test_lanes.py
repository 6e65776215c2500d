"""Overlap of computation and collectives: simple cases by hand, and general bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhal.forecast.lanes import Traffic, run_lanes
from polyhal.forecast.stage import Part, PassSpan
from polyhal.forecast.trace import GradientEvent


def span(seconds: float, *gradients: tuple[float, int], parameters: int = 0) -> PassSpan:
    return PassSpan(Part.LAYER, seconds, tuple(GradientEvent(*g) for g in gradients), parameters, 0, 0, 0)


def second(nbytes: float) -> float:
    """Return one second for each byte."""
    return float(nbytes)


def test_buckets_go_while_later_layers_compute() -> None:
    spans = [span(4, (4, 3)), span(4, (4, 3)), span(4, (4, 1))]
    times = run_lanes(spans, Traffic(reduce=second, bucket=3))
    assert times.computed == 12
    assert times.busy == 7
    assert times.communicated == 13, "only the last bucket is left after the computation"


def test_a_slow_link_holds_buckets_back() -> None:
    times = run_lanes([span(1, (0.5, 10)), span(1, (1, 10))], Traffic(reduce=second, bucket=1))
    assert times.communicated == 20.5


def test_a_layer_waits_for_its_parameters() -> None:
    spans = [span(5, parameters=2), span(5, parameters=8), span(5, parameters=1)]
    assert run_lanes(spans, Traffic(gather=second)).computed == 2 + 5 + 3 + 5 + 5, "gathers begin at once"
    ahead = run_lanes(spans, Traffic(gather=second, prefetch=1))
    assert ahead.computed == 10 + 5 + 5 - 0, "the second begins when both of the first gathers are done"


_SPANS = st.lists(
    st.builds(
        lambda seconds, nbytes, at, parameters: span(seconds, (at * seconds, nbytes), parameters=parameters),
        st.floats(0, 10),
        st.integers(0, 50),
        st.floats(0, 1),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=8,
)


@given(_SPANS, st.floats(0, 2), st.integers(1, 60), st.sampled_from([None, 0, 1, 2]))
def test_lanes_take_at_least_the_longer_and_at_most_the_sum(
    spans: list[PassSpan], rate: float, bucket: int, prefetch: int | None
) -> None:
    traffic = Traffic(lambda n: rate * n, prefetch, lambda n: rate * n, bucket)
    times = run_lanes(spans, traffic)
    compute = sum(s.seconds for s in spans)
    moved = sum(e.nbytes for s in spans for e in s.gradients) + sum(s.parameters for s in spans)
    assert times.busy == pytest.approx(rate * moved)
    assert max(compute, times.busy) <= times.end * (1 + 1e-9) + 1e-9
    assert times.end <= (compute + times.busy) * (1 + 1e-9) + 1e-9


@given(_SPANS, st.floats(0.1, 2), st.integers(1, 60))
def test_a_faster_link_is_never_slower(spans: list[PassSpan], rate: float, bucket: int) -> None:
    slow, fast = (
        run_lanes(spans, Traffic(lambda n, r=r: r * n, 1, lambda n, r=r: r * n, bucket)).end  # type: ignore[misc]
        for r in (rate, rate / 2)
    )
    assert fast <= slow * (1 + 1e-9) + 1e-9
