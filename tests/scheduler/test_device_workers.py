"""Captured steps on several devices agree with eager runs, and all workers follow one order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.scheduler.cross_device import COLLECTIVE, JOIN, PEER_COPY, RECEIVE, SEND, START
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.device import Device
from polyhal.hal.system.discovery.registry import registry
from polyhal.parallel import Group

from .random_steps import LONG, Instruction, check, programs
from .worker_devices import NUMPY, numpy_like, sim, sim_peers

pytestmark = pytest.mark.usefixtures("workers_under_a_limit")

_FEW = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@_FEW
@given(program=programs, count=st.integers(2, 4))
def test_random_steps_on_devices_of_the_host(program: list[Instruction], count: int) -> None:
    check(program, [*map(Device, NUMPY), numpy_like()][:count])


@pytest.fixture(scope="module")
def mixed() -> list[Device]:
    """Return two simulated peers, a NumPy device, another simulated device, and all OpenCL devices."""
    return [*sim_peers(), Device("numpy"), sim(), *(Device(c.name) for c in registry().probe("opencl"))]


@settings(_FEW, max_examples=6)
@given(program=programs, seed=st.integers(0, 99))
def test_random_steps_on_mixed_devices(program: list[Instruction], seed: int, mixed: list[Device]) -> None:
    order = np.random.default_rng(seed).permutation(len(mixed))
    check(program, [mixed[i] for i in order[: 2 + seed % 3]])


def test_a_long_step_on_all_devices(mixed: list[Device]) -> None:
    executable = check(LONG, mixed, 6)
    assert executable is not None
    assert {n.op for n in executable.graph.nodes} >= set(_PARTS), "all lowerings of cross-device ops"


_PARTS = (SEND, RECEIVE, START, COLLECTIVE, PEER_COPY, JOIN)


@settings(_FEW, max_examples=40)
@given(program=programs, count=st.integers(2, 4))
def test_workers_follow_one_order(program: list[Instruction], count: int) -> None:
    """Check on real plans the premises of two proofs: workers cannot deadlock, and memory plans are valid."""
    executable = check(program, [*map(Device, NUMPY), numpy_like()][:count], 1)
    assert executable is not None
    graph = executable.graph
    for k, node in enumerate(graph.nodes):
        assert all(graph.producer_index(v) < k for v in node.reads)
        if node.op is RECEIVE:
            (send,) = [n for n in graph.nodes[:k] if n.outputs == tuple(node.reads)]
            assert send.op is SEND
            assert send.device is not node.device
            _assert_prompt(graph, send, k)
        if node.op is JOIN:
            collective, start = graph.producer(node.value(0)), graph.producer(node.value(1))
            assert collective is not None
            assert start is not None
            assert collective.op is COLLECTIVE
            assert start.op is START
            assert start.device is node.device
            assert graph.nodes.index(start) < graph.nodes.index(collective) < k
            _assert_unshared(executable, start, k)
    positions = {id(node): k for k, node in enumerate(graph.nodes)}
    workers: dict[Any, list[int]] = {}
    for p in executable.partitions:
        worker = workers.setdefault(p.worker or p.device, [])
        worker += [positions[id(n)] for n in p.nodes if n is not None]
    assert all(worker == sorted(worker) for worker in workers.values())


def _assert_prompt(graph: Graph, send: Node, receive: int) -> None:
    """Check that no node runs between producer and send on the source, nor between receive and first use on the target."""

    def idle(nodes: Sequence[Node], device: Device) -> bool:
        return all(n.device is not device or graph.is_view(n) or n.op in _PARTS for n in nodes)

    root, sent = graph.root(send.value(0)), graph.nodes.index(send)
    joins = [k for k, n in enumerate(graph.nodes) if n.op is JOIN and n.value(1) == root]
    made = joins[0] if joins else graph.producer_index(root)
    assert idle(graph.nodes[made + 1 : sent], send.device)
    (out,) = graph.nodes[receive].outputs
    uses = [k for k, n in enumerate(graph.nodes) if out in map(graph.root, n.reads) and not graph.is_view(n)]
    assert idle(graph.nodes[receive + 1 : min(uses, default=len(graph.nodes))], graph.nodes[receive].device)


def _assert_unshared(executable: Executable, start: Node, join: int) -> None:
    """Check that between start and join no node writes the buffers of a collective or reads its receive buffer."""
    graph, calls = executable.graph, {id(c.node): c for c in executable.calls if c is not None}
    first, device = graph.nodes.index(start), start.device
    read = [_extent(executable, v) for v in start.reads]
    written = [_extent(executable, v) for v in start.outputs]
    for node in graph.nodes[first + 1 : join]:
        call = calls.get(id(node))
        if call is None or node.device is not device or node.op in (COLLECTIVE, JOIN):
            continue
        writes = [_extent(executable, v) for v in node.outputs]
        assert not any(_overlap(a, b) for a in writes for b in read + written)
        assert node.op is START or not any(_overlap(_extent(executable, v), b) for v in node.reads for b in written)


def _extent(executable: Executable, value: int) -> tuple[int, int, int]:
    """Return the memory of a value: identity of its block, first byte, and one past the last byte."""
    ref = executable._refs[value]
    if ref is None or not ref.size:
        return 0, 0, 0
    size = ref.dtype.itemsize
    last = sum((n - 1) * s for n, s in zip(ref.shape, ref.strides, strict=True))
    return id(ref.handle), ref.offset * size, (ref.offset + last + 1) * size


def _overlap(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def test_empty_and_strided_values_are_transferred() -> None:
    a, b = Device("numpy"), numpy_like()
    step = ph.jit(lambda x, e: ((x.T + 0).to(b), x[:, ::2].to(b).sum(), e.to(b), (e + 1).to(b)), warm_up=False)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for _ in range(3):
        t, s, e, f = step(ph.Tensor(x, device=a), ph.zeros((0, 3), device=a))
        np.testing.assert_array_equal(t.numpy(), x.T)
        assert s.item() == x[:, ::2].sum()
        assert e.shape == f.shape == (0, 3)


def test_large_tensors_move_in_chunks(mixed: list[Device]) -> None:
    x = np.arange(3 * 5 * 7, dtype=np.float64).reshape(3, 5, 7)
    for source, target in itertools.permutations(mixed, 2):
        original = ph.Tensor(x, device=source)
        moved, strided = original.to(target), original.permute((2, 0, 1)).to(target)
        original.mul_(0)
        np.testing.assert_array_equal(moved.numpy(), x)
        np.testing.assert_array_equal(strided.numpy(), x.transpose(2, 0, 1))


def test_a_forwarded_value_has_arrived() -> None:
    """No node runs between the receive and the send of a forwarded value, which use separate streams."""
    a, b = sim_peers()
    group = Group([a, b])

    def step(x: ph.Tensor) -> tuple[ph.Tensor, ...]:
        for _ in range(3):
            x = x.to(b).to(a)
        here, there = group.broadcast(x)
        return here, *group.all_gather([there.to(a), here.to(b)])

    captured = ph.jit(step, warm_up=False)
    for value in range(4):
        x = np.full(200_000, value, np.float32)
        found = captured(ph.Tensor(x, device=a))
        assert all((y.numpy() == value).all() for y in found)
