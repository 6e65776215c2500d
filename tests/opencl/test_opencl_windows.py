"""Collectives by kernels of devices that write to each other's memory, among cards that PoCL simulates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from fake_cuda import FakeCuda
from hypothesis import given, settings
from hypothesis import strategies as st
from test_opencl_peers import as_card

import polyhal as ph
from polyhal.backends.common.cuda_driver import CudaDriver
from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl.peers import exported_memory, peer_copies
from polyhal.backends.opencl.peers.imported_memory import MemoryImporter
from polyhal.backends.opencl_c.collectives import schedule, window_communicator
from polyhal.backends.opencl_c.collectives.schedule import exchange_of
from polyhal.backends.opencl_c.collectives.window_communicator import WindowCommunicator
from polyhal.backends.opencl_c.lowering.collective.exchange import Exchange, Geometry
from polyhal.distributed.direct import direct
from polyhal.graphs.selection import recorded_step
from polyhal.hal.collectives.collective import Collective, Kind, Reduction, divided
from polyhal.hal.device import Device
from polyhal.parallel import DataParallel, Group

sys.path.append(str(Path(__file__).parents[1]))
from distributed.thread_ranks import on_threads

DTYPES = (ph.float32, ph.bfloat16, ph.int64, ph.uint8)


# --- exchanges --------------------------------------------------------------------------------------------------------


def carried_out(exchanges: list[Exchange], sources: list[np.ndarray], targets: list[np.ndarray]) -> None:
    """Return the results of the exchange kernels, computed in NumPy."""
    for me, (exchange, target) in enumerate(zip(exchanges, targets, strict=True)):
        arrived = [
            source[other.send[me].start : other.send[me].start + other.send[me].size]
            for other, source in zip(exchanges, sources, strict=True)
        ]
        assert all(len(a) <= exchange.longest for a in arrived)
        if exchange.operation:
            total = arrived[0]
            for a in arrived[1:]:
                total = {"sum": np.add, "largest": np.maximum, "smallest": np.minimum}[exchange.operation](total, a)
            target[exchange.result_start : exchange.result_start + len(total)] = total
        else:
            for range_, a in zip(exchange.receive, arrived, strict=True):
                assert range_.size == len(a)
                target[range_.start : range_.start + range_.size] = a
    for me, (exchange, target) in enumerate(zip(exchanges, targets, strict=True)):
        if exchange.operation and exchange.gathers:
            for j, range_ in enumerate(exchange.receive):
                if j != me:
                    start = exchanges[j].result_start
                    target[range_.start : range_.start + range_.size] = targets[j][start : start + range_.size]


@given(st.sampled_from(Kind), st.lists(st.integers(0, 40), min_size=2, max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_exchanges_implement_each_collective(kind: Kind, counts: list[int], data: st.DataObject) -> None:
    root = data.draw(st.integers(0, len(counts) - 1))
    reduction = data.draw(st.sampled_from(Reduction))
    collective = Collective(kind, tuple(counts), reduction, root)
    if not collective.total:
        return
    members = range(len(counts))
    rng = np.random.default_rng(0)
    sizes = [collective.source_size(i) for i in members]
    sources = [rng.integers(0, 100, n or 0).astype(np.float32) for n in sizes]
    targets = [np.full(collective.target_size(i) or 0, -1, np.float32) for i in members]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "_ONE_SHOT_BYTES", data.draw(st.sampled_from([-1, 1 << 20])))
        carried_out([exchange_of(collective, i, ph.float32) for i in members], sources, targets)
    whole = np.concatenate(sources) if kind in (Kind.GATHER, Kind.ALL_GATHER) else sources[root]
    if kind in (Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER):
        combine: Any = {"sum": np.sum, "max": np.max, "min": np.min}[reduction]
        whole = combine(np.stack(sources), axis=0)
    parts = np.split(whole, np.cumsum(counts)[:-1])
    for i in members:
        if collective.target_size(i) is not None:
            expected = parts[i] if kind in (Kind.SCATTER, Kind.REDUCE_SCATTER) else whole
            assert np.array_equal(targets[i], expected)


# --- kernels ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Simulate a driver of four cards, with exchanges of one work-group, which PoCL can run concurrently."""
    fake = FakeCuda(*[f"0000:0{i}:00.0" for i in range(4)])
    monkeypatch.setattr(exported_memory, "exporting_driver", lambda: CudaDriver(fake))
    monkeypatch.setattr(MemoryImporter, "accepts", lambda self, kind: True)
    for module in (peer_copies, window_communicator):
        monkeypatch.setattr(module, "GEOMETRY", Geometry(channels=1, group=16, slot=1024, batch=1))
    return fake


def cards(pocl: discovery.OpenCLDevice, numbers: range) -> list[Device]:
    backends = [OpenCLBackend(pocl) for _ in numbers]
    for number, backend in zip(numbers, backends, strict=True):
        as_card(backend, number, f"0000:0{number}:00.0")
    return [Device.opened(f"card:{n}", b) for n, b in zip(numbers, backends, strict=True)]


def arrays(rng: np.random.Generator, dtype: ph.DType, size: int, count: int) -> list[np.ndarray]:
    return [rng.integers(0, 50, size).astype(dtype.numpy) for _ in range(count)]


def check(group: Group, values: list[np.ndarray], first: int, dtype: ph.DType) -> None:
    """Check one process's collectives against NumPy; its participants start at `first`; `values` are everyone's."""
    devices, size = group.devices, len(values[0])
    own = range(first, first + len(devices))
    xs = [ph.tensor(values[m], dtype=dtype, device=d) for m, d in zip(own, devices, strict=True)]
    total = sum(v.astype(np.int64) for v in values).astype(dtype.numpy)
    cuts = np.cumsum(divided(size, len(values)))[:-1]
    for got in group.all_reduce(xs):
        assert np.array_equal(got.numpy(), total)
    for got in group.all_reduce(xs, "max"):
        assert np.array_equal(got.numpy(), np.max(np.stack(values).astype(np.int64), axis=0).astype(dtype.numpy))
    parts = group.reduce_scatter(xs)
    for m, part in zip(own, parts, strict=True):
        assert np.array_equal(part.numpy(), np.split(total, cuts)[m])
    for got in group.all_gather(parts):
        assert np.array_equal(got.numpy(), total)
    for x, m in zip(xs, own, strict=True):
        assert np.array_equal(x.numpy(), values[m]), "send buffers do not change"
    if len(devices) == len(values):
        for root in range(len(values)):
            gathered, one = group.gather(parts, root), group.reduce(xs, root, "min")
            assert gathered is not None
            assert np.array_equal(gathered.numpy(), total)
            assert one is not None
            assert np.array_equal(one.numpy(), np.min(np.stack(values).astype(np.int64), axis=0).astype(dtype.numpy))
            for got in group.broadcast(xs[root], root):
                assert np.array_equal(got.numpy(), values[root])
            scattered = group.scatter(xs[root], root)
            assert np.array_equal(np.concatenate([s.numpy() for s in scattered]), values[root])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_collectives_of_a_process(
    pocl: discovery.OpenCLDevice, small: FakeCuda, dtype: ph.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(cards(pocl, range(2)))
    assert isinstance(group.communicator, WindowCommunicator)
    rng = np.random.default_rng(1)
    for size in (1, 2, 17, 1000, 1999):  # one element, whole and partial vectors, several steps
        check(group, arrays(rng, dtype, size, 2), 0, dtype)
        monkeypatch.setattr(schedule, "_ONE_SHOT_BYTES", -1)  # an all-reduce in two steps


def test_collectives_of_several_processes(
    pocl: discovery.OpenCLDevice, small: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process has a device; memory is shared by file descriptors."""
    values = arrays(np.random.default_rng(2), ph.float32, 1999, 2)
    devices = [cards(pocl, range(n, n + 1)) for n in range(2)]
    monkeypatch.setattr("polyhal.distributed.direct._SMALLEST", 0)

    def rank(processes: Any) -> str:
        group = Group(devices[processes.rank], processes)
        check(group, values, processes.rank, ph.float32)
        again = Group(devices[processes.rank], processes)
        check(again, values, processes.rank, ph.float32)
        windows = len(small.live)
        assert again.communicator.all_lengths([processes.rank + 3]) == (3, 4)
        again.barrier()
        x = ph.tensor(values[processes.rank], device=devices[processes.rank][0])
        exchanged = [
            direct(kind, x, counts, 4, processes, op=op, root=1)
            for kind, op, counts in (
                (Kind.ALL_REDUCE, "mean", divided(1999, 2)),
                (Kind.REDUCE_SCATTER, "max", (1999, 0)),
                (Kind.BROADCAST, "sum", divided(1999, 2)),
                (Kind.ALL_GATHER, "sum", (1999, 1999)),
            )
        ]
        expected = (
            sum(values) / 2,
            np.maximum(*values)[: 1999 - 1999 * processes.rank],
            values[1],
            np.concatenate(values),
        )
        for got, want in zip(exchanged, expected, strict=True):
            assert got is not None
            assert np.array_equal(got.numpy(), want)
        mixed = x if processes.rank else None
        assert direct(Kind.ALL_REDUCE, mixed, divided(1999, 2), 4, processes) is None, "a rank's tensor is on the host"
        assert direct(Kind.ALL_REDUCE, x, divided(1999, 2), 4, processes) is not None
        return f"{type(group.communicator).__name__} {windows}"

    assert on_threads(2, rank) == ["WindowCommunicator 2"] * 2, "groups of the same devices share their windows"


@pytest.mark.parametrize("rate", [0.0, 1e30], ids=["on compute stream", "overlapped"])
def test_captured_sums_of_several_processes(
    pocl: discovery.OpenCLDevice, small: FakeCuda, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_communicator, "_FAST", rate)
    devices = [cards(pocl, range(n, n + 1)) for n in range(2)]

    def rank(processes: Any) -> list[float]:
        group = Group(devices[processes.rank], processes)
        assert group.communicator.on_compute_stream is (rate == 0)
        step = ph.jit(lambda x: group.all_reduce([x * 2])[0] + 1, warm_up=False)
        x = ph.full((300,), processes.rank + 1.0, device=group.devices[0])
        results = [step(x + n).numpy() for n in range(4)]
        assert all((r == r[0]).all() for r in results)
        return [float(r[0]) for r in results]

    assert on_threads(2, rank) == [[2 * (3 + 2 * n) + 1 for n in range(4)]] * 2


def test_no_process_uses_windows_if_one_has_none(pocl: discovery.OpenCLDevice, small: FakeCuda) -> None:
    values = arrays(np.random.default_rng(2), ph.float32, 100, 2)
    devices = [cards(pocl, range(1)), [Device("numpy")]]

    def rank(processes: Any) -> str:
        group = Group(devices[processes.rank], processes)
        check(group, values, processes.rank, ph.float32)
        return type(group.communicator).__name__

    assert on_threads(2, rank) == ["HierarchicalCommunicator"] * 2


def test_contexts_of_one_card_have_no_windows(pocl: discovery.OpenCLDevice, small: FakeCuda) -> None:
    """Its kernels would deadlock: they wait for each other, and only one runs at a time."""
    twins = [*cards(pocl, range(1)), *cards(pocl, range(1))]
    assert not isinstance(Group(twins).communicator, WindowCommunicator)
    names = on_threads(2, lambda p: type(Group([twins[p.rank]], p).communicator).__name__)
    assert names == ["HierarchicalCommunicator"] * 2
    assert not small.live


def test_a_wrong_result_of_the_trial_disables_windows(
    pocl: discovery.OpenCLDevice, small: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WindowCommunicator, "works", lambda self: False)
    group = Group(cards(pocl, range(2)))
    assert not isinstance(group.communicator, WindowCommunicator)
    check(group, arrays(np.random.default_rng(3), ph.float32, 1000, 2), 0, ph.float32)


def test_an_exchange_without_partners_times_out(
    pocl: discovery.OpenCLDevice, small: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one of two participants starts a kernel, which times out after the trial's time."""
    group = Group(cards(pocl, range(2)))
    assert isinstance(group.communicator, WindowCommunicator)
    exchanger = group.communicator._exchanger
    alone = exchanger._devices[:1]
    monkeypatch.setattr(exchanger, "_devices", alone)
    x = ph.ones((100,), device=group.devices[0])
    exchange = exchange_of(Collective(Kind.ALL_REDUCE, (50, 50)), 0, ph.float32)
    (end,) = exchanger.run([exchange], [x.ref], [x.ref], trial_seconds=0.1)
    end.wait()


def test_a_participant_that_only_sends_does_not_wait(
    pocl: discovery.OpenCLDevice, small: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written to the windows of the others, which read them later."""
    monkeypatch.setenv("POLYHAL_COLLECTIVE_TIMEOUT", "5")
    group = Group(cards(pocl, range(2)))
    assert isinstance(group.communicator, WindowCommunicator)
    exchanger = group.communicator._exchanger
    for value in range(5):  # more than the number of slots
        x = ph.full((100,), float(value), device=group.devices[0])
        y = ph.zeros((100,), device=group.devices[1])
        exchanges = [exchange_of(Collective(Kind.BROADCAST, (50, 50)), i, ph.float32) for i in range(2)]
        exchanger.run_member(0, exchanges[0], x.ref, x.ref)
        group.devices[0].synchronize()
        exchanger.run_member(1, exchanges[1], y.ref, y.ref)
        assert y.tolist() == [value] * 100
    late = np.empty(1, np.uint32)
    with group.devices[0].backend.runtime.waiting():  # type: ignore[attr-defined]
        cl.enqueue_copy(exchanger._devices[0].runtime.queue, late, exchanger._windows[0][0], src_offset=32 * 4)
    assert not late[0]


@pytest.mark.parametrize("rate", [0.0, 1e30], ids=["on compute stream", "overlapped"])
def test_a_captured_step_trains_as_on_one_device(
    pocl: discovery.OpenCLDevice, small: FakeCuda, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated links are fast or slow."""
    monkeypatch.setattr(window_communicator, "_FAST", rate)
    devices = cards(pocl, range(2))
    assert Group(devices).communicator.on_compute_stream is (rate == 0)
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((8, 6)).astype(np.float32), rng.standard_normal((8, 3)).astype(np.float32)

    def trained(devices: list[Any]) -> list[np.ndarray]:
        ph.manual_seed(0)
        layer = ph.nn.Sequential(ph.nn.Linear(6, 40), ph.nn.Tanh(), ph.nn.Linear(40, 3)).to("numpy")
        model = DataParallel(layer, devices) if len(devices) > 1 else layer.to(devices[0])
        optimizer = ph.optim.SGD(model.parameters(), lr=0.1)
        inputs = [ph.tensor(a, device=devices[0]) for a in (x, y)]

        @ph.jit
        def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
            optimizer.zero_grad()
            loss = ph.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(*inputs).item() for _ in range(6)]
        return [np.array(losses), *[p.numpy() for p in model.parameters()]]

    for got, expected in zip(trained(devices), trained([Device("numpy")]), strict=True):
        # Sums of at most 48 products in float32, six times: the order of sums may change results by 1e-5.
        assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_measured_speed_of_a_link_changes_no_bit(
    pocl: discovery.OpenCLDevice, small: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit determines the buckets of gradients and the time of their reduction, but not the order of summation."""
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((9, 6)).astype(np.float32), rng.standard_normal((9, 3)).astype(np.float32)
    trained = []
    for rate in (0.0, 1e30):
        monkeypatch.setattr(window_communicator, "_FAST", rate)
        devices = cards(pocl, range(2))
        assert Group(devices).communicator.on_compute_stream is (rate == 0)
        ph.manual_seed(0)
        layers = [ph.nn.Linear(6, 40), *[ph.nn.Linear(40, 40) for _ in range(3)], ph.nn.Linear(40, 3)]
        model = DataParallel(ph.nn.Sequential(*layers).to("numpy"), devices)
        optimizer = ph.optim.AdamW(model.parameters(), lr=0.1)
        inputs = [ph.tensor(a, device=devices[0]) for a in (x, y)]

        @ph.jit
        def step(x: ph.Tensor, y: ph.Tensor, model: Any = model, optimizer: Any = optimizer) -> ph.Tensor:
            optimizer.zero_grad()
            loss = ph.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(*inputs).item() for _ in range(4)]
        trained.append([np.array(losses), *[p.numpy() for p in model.parameters()]])
    assert all(np.array_equal(a, b) for a, b in zip(*trained, strict=True))


def test_a_step_may_begin_with_copies_for_a_collective(
    pocl: discovery.OpenCLDevice, small: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker threads of both devices have to run the copies before either starts the collective."""
    monkeypatch.setattr(window_communicator, "_FAST", 0.0)
    group = Group(cards(pocl, range(2)))
    a, b = group.devices
    step = ph.jit(lambda x, y: [z + 1 for z in group.all_reduce([y.to(a), x.to(b)])], warm_up=False)
    for n in range(4):
        results = step(ph.full((300,), float(n), device=a), ph.ones((300,), device=b))
        assert [z.tolist() for z in results] == [[n + 2] * 300] * 2


def test_casts_of_gathered_parameters_take_few_launches(pocl: discovery.OpenCLDevice, small: FakeCuda) -> None:
    """As with local parameters, small ones are cast in one launch as soon as they have arrived."""

    def casts(devices: list[Device]) -> list[str]:
        layers = ph.nn.Sequential(*[ph.nn.Linear(7, 7) for _ in range(5)]).to(devices[0])
        model = DataParallel(layers, devices) if len(devices) > 1 else layers

        @ph.jit(warm_up=False)
        def step(x: ph.Tensor) -> ph.Tensor:
            with ph.amp.autocast(dtype=ph.bfloat16):
                return model(x).float().sum()

        for _ in range(2):
            step(ph.ones((4, 7), device=devices[0]))
        executable = recorded_step(step).executable  # type: ignore[union-attr]
        names = ("cast", "foreach_elementwise")
        return [n.op.name for n in executable.graph.nodes if n.device is devices[0] and n.op.name in names]

    pair = cards(pocl, range(2))
    assert casts(pair) == casts(pair[:1])
    assert "foreach_elementwise" in casts(pair)
