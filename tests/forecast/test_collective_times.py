"""Times of collectives: formulas in simple cases, and better links are never slower."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.forecast.cluster import Cluster
from polyhal.forecast.collective_times import (
    DeviceGroup,
    all_gather,
    all_reduce,
    group_of,
    reduce_scatter,
    send,
)
from polyhal.hal.core.hardware.links import Link


def cluster(
    devices: int = 64, inside: float = 100e9, between: float = 10e9, ports: int = 8, us: float = 0.0
) -> Cluster:
    latency = us * 1e-6
    links = Link("inside", inside, latency), Link("between", between, latency)
    return Cluster("h200", devices, 8, 1 << 30, {"float32": 1e12}, *links, ports)


def test_a_ring_sends_each_byte_almost_twice() -> None:
    assert all_reduce(cluster(), DeviceGroup(4, 1), 1e9) == pytest.approx(2 * 3 / 4 * 1e9 / 100e9)
    assert reduce_scatter(cluster(), DeviceGroup(4, 1), 1e9) == pytest.approx(3 / 4 * 1e9 / 100e9)


def test_between_nodes_each_device_sends_only_its_part() -> None:
    expected = 2 * 7 / 8 * 1e9 / 100e9 + 2 * 3 / 4 * 1e9 / 8 / 10e9
    assert all_reduce(cluster(), DeviceGroup(8, 4), 1e9) == pytest.approx(expected)
    half = all_reduce(cluster(ports=4), DeviceGroup(8, 4), 1e9) - all_reduce(cluster(), DeviceGroup(8, 4), 1e9)
    assert half == pytest.approx(2 * 3 / 4 * 1e9 / 8 / 10e9), "devices share the ports of a node"
    alone = all_reduce(replace(cluster(), devices=2, per_node=1), DeviceGroup(1, 2), 1e9)
    assert alone == pytest.approx(1e9 / 80e9), "a device that is alone in its node has all ports"
    assert all_reduce(cluster(4), DeviceGroup(1, 2), 1e9) == pytest.approx(1e9 / 10e9), "others have their own"


def test_small_messages_go_through_a_tree() -> None:
    assert all_reduce(cluster(us=10), DeviceGroup(8, 1), 4) == pytest.approx(2 * 3 * 10e-6, rel=1e-3)


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [(8, 1, (8, 1)), (16, 1, (8, 2)), (8, 8, (1, 8)), (4, 2, (4, 1)), (8, 4, (2, 4)), (1, 1, (1, 1))],
)
def test_groups_fill_nodes_first(size: int, stride: int, expected: tuple[int, int]) -> None:
    group = group_of(cluster(), size, stride)
    assert (group.local, group.nodes) == expected


def test_neighbours_in_a_node_use_its_link() -> None:
    assert send(cluster(), 4, 1e9) == pytest.approx(0.01)
    assert send(cluster(), 8, 1e9) == pytest.approx(0.1)


@given(
    st.integers(1, 8),
    st.integers(1, 128),
    st.floats(0, 1e12),
    st.floats(1e8, 1e12),
    st.floats(1e8, 1e12),
    st.floats(0, 100),
    st.floats(1, 10),
)
@settings(max_examples=50)
def test_more_bandwidth_and_fewer_bytes_are_never_slower(
    local: int, nodes: int, nbytes: float, inside: float, between: float, us: float, factor: float
) -> None:
    group = DeviceGroup(local, nodes)
    slow = cluster(local * nodes, inside, between, us=us)
    fast = cluster(local * nodes, inside * factor, between * factor, us=us)
    for operation in (all_reduce, reduce_scatter, all_gather):
        assert operation(fast, group, nbytes) <= operation(slow, group, nbytes) * (1 + 1e-12)
        assert operation(slow, group, nbytes) <= operation(slow, group, nbytes * factor) * (1 + 1e-12)
    if group.size > 1 and nbytes:
        least, most = min(inside, between), max(inside, between)
        assert all_reduce(slow, group, nbytes) >= nbytes / most * (1 - 1e-12)
        assert all_reduce(cluster(local * nodes, inside, between), group, nbytes) <= 4 * nbytes / least
