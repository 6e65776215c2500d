"""Forecasts of strategies: limits that hold for every device, and properties of the search."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import forecaster, small_gpt

from polyhal.forecast.cluster import parse_cluster
from polyhal.forecast.curve import curve, parse_batch
from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.ownership import largest_share
from polyhal.forecast.recipes import find_model
from polyhal.forecast.search import search
from polyhal.forecast.strategy import SHARDINGS, Strategy, parse_constraints
from polyhal.forecast.trace import TraceKey
from polyhal.hal.core.hardware.links import Link
from polyhal.hal.errors import OutOfMemoryError
from polyhal.parallel.replication import assign_owners


@pytest.fixture(scope="module")
def small() -> Forecaster:
    """Return a forecaster of a small GPT on up to 64 devices."""
    return forecaster(small_gpt(), "64xh200", "nvlink4,8xinfiniband-ndr")


@pytest.mark.parametrize("shard", SHARDINGS)
def test_ideal_links_scale_linearly(small: Forecaster, shard: str) -> None:
    ideal = parse_cluster("64xh200", "ideal,ideal")
    one = small.predict(Strategy(micro_batch=16), ideal.of(1))
    many = small.predict(Strategy(data=64, micro_batch=16, shard=shard), ideal)
    assert many.data == pytest.approx(0.0, abs=1e-12)
    assert many.seconds == pytest.approx(one.seconds if shard == "none" else many.compute)
    assert many.samples_per_second >= 64 * one.samples_per_second * (1 - 1e-12)


def test_ideal_links_leave_a_pipeline_its_bubble(small: Forecaster) -> None:
    ideal = parse_cluster("8xh200", "ideal")
    predicted = small.predict(Strategy(pipeline=4, micro_batch=16, passes=12), ideal)
    whole = small.predict(Strategy(micro_batch=16, passes=12), ideal.of(1))
    assert sum(predicted.layers) == 8
    assert whole.seconds / 4 * (1 + 3 / 12) < predicted.seconds < whole.seconds / 2
    assert predicted.bubble > 0.1 * predicted.seconds


def test_split_layers_compute_less_and_wait_for_sums(small: Forecaster) -> None:
    whole, split = (small.predict(Strategy(tensor=t, micro_batch=1024)) for t in (1, 4))
    assert split.compute < 0.6 * whole.compute
    assert split.tensor > 0 == whole.tensor
    sizes = [small.trace(TraceKey(1024, split=t)).parameters for t in (1, 4)]
    norms_and_biases = 6 * 256 * 4  # two norms, and the biases that are added after the sums
    assert sum(sizes[1].layer) == (sum(sizes[0].layer) - norms_and_biases) // 4 + norms_and_biases


def test_sharded_state_is_divided_among_replicas(small: Forecaster) -> None:
    whole, optimizer, parameters = (
        small.predict(Strategy(data=64, micro_batch=4, shard=shard)).memory for shard in SHARDINGS
    )
    assert optimizer.state >= whole.state / 64
    assert optimizer.state == pytest.approx(whole.state * _largest(small) / whole.parameters)
    assert optimizer.parameters == whole.parameters + _largest(small)
    assert parameters.parameters == pytest.approx(whole.parameters / 64)
    assert parameters.state == pytest.approx(whole.state / 64)


def _largest(small: Forecaster) -> int:
    """Return the bytes of the largest parameter: with many owners, one of them owns only this parameter."""
    sizes = small.trace(TraceKey(4)).parameters
    return max(*sizes.before, *sizes.layer)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 3000))
def test_owners_match_data_parallel(sizes: list[int], owners: int, bucket: int) -> None:
    names = {str(i): n for i, n in enumerate(sizes)}
    runs = [[str(i) for i in run] for run in _positions(sizes, bucket)]
    load = [0] * owners
    for name, owner in assign_owners(names, [1.0] * owners, runs).items():
        load[owner] += names[name]
    assert largest_share(sizes, owners, bucket) == max(load)


def _positions(sizes: list[int], bucket: int) -> list[list[int]]:
    """Return runs of parameters up to the size of a bucket."""
    runs: list[list[int]] = [[]]
    for i, size in enumerate(sizes):
        if runs[-1] and sum(sizes[j] for j in runs[-1]) + size > bucket:
            runs.append([])
        runs[-1].append(i)
    return runs


def test_stages_hold_a_part_of_the_model_and_several_micro_batches(small: Forecaster) -> None:
    one = small.predict(Strategy(micro_batch=16, passes=8)).memory
    four = small.predict(Strategy(pipeline=4, micro_batch=16, passes=8)).memory
    assert four.parameters < 0.6 * one.parameters
    kept = small.trace(TraceKey(16, accumulate=True)).kept
    assert four.temporaries >= 3 * kept


@given(
    st.sampled_from([(64, 1, 1), (16, 4, 1), (8, 2, 4), (4, 4, 4), (32, 1, 2)]),
    st.sampled_from(SHARDINGS),
    st.floats(1e8, 1e12),
    st.floats(1e8, 1e12),
    st.floats(0, 50),
    st.floats(1, 20),
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_better_links_are_never_slower(
    small: Forecaster,
    degrees: tuple[int, int, int],
    shard: str,
    inside: float,
    between: float,
    us: float,
    factor: float,
) -> None:
    strategy = Strategy(*degrees, micro_batch=2, passes=4, shard=shard)
    slow = replace(small.cluster, inside=Link("inside", inside, us * 1e-6), between=Link("between", between, us * 1e-6))
    for better in (
        replace(slow, inside=replace(slow.inside, bandwidth=inside * factor)),
        replace(slow, between=replace(slow.between, bandwidth=between * factor)),
        replace(slow, between=replace(slow.between, latency=us * 1e-6 / factor)),
    ):
        assert small.predict(strategy, better).seconds <= small.predict(strategy, slow).seconds * (1 + 1e-9)


def test_parts_of_a_step_add_up(small: Forecaster) -> None:
    found = search(small, small.cluster.of(4), 8)
    for p in found.fitting:
        assert p.seconds == pytest.approx(p.compute + p.tensor + p.data + p.bubble)
        assert min(p.compute, p.tensor, p.data, p.hidden, p.bubble) >= 0
        assert p.strategy.devices == 4
        assert p.strategy.batch == 8
        assert p.memory.total <= small.cluster.memory
    assert [p.seconds for p in found.fitting] == sorted(p.seconds for p in found.fitting)
    assert len({str(p.strategy) for p in found.fitting}) == len(found.fitting)


def test_constraints_on_strategies_hold(small: Forecaster) -> None:
    required = parse_constraints("tensor=2, shard=parameters, recompute")
    found = search(small, small.cluster.of(4), 8, required)
    assert {(p.strategy.tensor, p.strategy.shard, p.strategy.recompute) for p in found.fitting} == {
        (2, "parameters", True)
    }
    large = search(small, small.cluster.of(2), 32, parse_constraints("data=2,micro=16,shard=none"))
    assert [str(p.strategy) for p in large.fitting] == ["data=2,micro=16"]
    with pytest.raises(ValueError, match="no strategy for 4 devices"):
        search(small, small.cluster.of(4), 8, parse_constraints("tensor=3"))


def test_a_model_that_fits_nowhere_says_how_much_it_needs(small: Forecaster) -> None:
    tiny = replace(small.cluster, devices=2, memory=1 << 20)
    with pytest.raises(OutOfMemoryError, match=r"no strategy fits: .* GiB on each device; expected at most 0.0 GiB"):
        _ = search(small, tiny, 2).best


def test_the_curve_starts_at_one_and_slow_links_bend_it() -> None:
    slow = forecaster(small_gpt(), "16xh200", "nvlink4,1xethernet-1g")
    points = curve(slow, parse_batch("1/device"), parse_constraints("tensor=1,pipeline=1,micro=1,shard=none"))
    assert [p.devices for p in points] == [1, 2, 4, 8, 16]
    assert points[0].efficiency == 1
    assert points[4].efficiency < 0.5 * points[3].efficiency


def test_seventy_billion_parameters_take_no_memory_here() -> None:
    known = forecaster(find_model("llama-70b"), "1024xh200")
    assert known.parameters == 68_976_648_192  # 70B by name; Llama 2 70B has as many
    strategy = Strategy(data=32, tensor=8, pipeline=4, micro_batch=1, passes=8, shard="optimizer")
    predicted = known.predict(strategy)
    assert sum(predicted.layers) == 80
    assert 16e9 < predicted.memory.total < known.cluster.memory
    share = known.utilization(predicted)
    assert share is not None
    assert 0.1 < share < 0.6


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpt2-124m", 124_439_808), ("gpt2-1.5b", 1_557_611_200), ("llama-1b", 1_100_048_384), ("bert-base", 109_483_778)],
)
def test_models_have_the_parameters_of_their_names(name: str, expected: int) -> None:
    assert forecaster(find_model(name)).parameters == expected
