"""Captured steps on several devices: each device's part runs on a thread of its own, and values cross in between."""

from __future__ import annotations

import contextvars
import faulthandler
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from async_reads import AsyncReadBackend, ReadEvent
from faulty_kernels import FaultyKernels, LosesTheDevice, RaisesAtLaunch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.backends.numpy.backend import create as numpy_backend
from polyhal.backends.sim.backend import create as sim_backend
from polyhal.graphs.selection import recorded_step
from polyhal.hal.collectives.local import LocalCommunicator
from polyhal.hal.device import Device
from polyhal.hal.discovery.registry import registry
from polyhal.hal.errors import BackendError, DeviceLostError, NonFiniteError, TransferError
from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.protocol import Launch, SimpleLaunch
from polyhal.hal.scheduler.crossings import COLLECTIVE, JOIN, PEER_COPY, RECEIVE, SEND, START
from polyhal.hal.scheduler.executable import Executable
from polyhal.hal.transfers import relay, staged_chunk
from polyhal.parallel import Group

_SECONDS = 60
"""After which a test that hangs ends the run, with the stacks of all threads."""
_NUMPY = ("numpy", "numpy:no_f64", "numpy:contiguous_only")


@pytest.fixture(autouse=True)
def _no_hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(relay, "CHUNK", 40)  # most values are sent in several chunks
    monkeypatch.setattr(staged_chunk, "SMALL", 24)  # and in both ways
    faulthandler.dump_traceback_later(_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def numpy_like(backend: NumpyBackend | None = None) -> Device:
    """A device of its own that computes in NumPy."""
    return Device.opened("other", backend or NumpyBackend(replace(numpy_backend("").info, id="other")))


def sim() -> Device:
    return Device.opened("sim", sim_backend("teaching,memory=64MiB"))


def executable_of(step: Any) -> Executable:
    return recorded_step(step).executable  # type: ignore[union-attr]


# --- the same results as op by op -------------------------------------------------------------------------------------

_LENGTH = 5
Instruction = tuple[int, int, int, int]
_programs = st.lists(st.tuples(*[st.integers(0, 99)] * 4), min_size=1, max_size=14)


def _run(program: Sequence[Instruction], inputs: Sequence[Any], states: Sequence[Any], group: Group) -> list[Any]:
    """Run a program that makes values on all devices, moves them about, and changes a state on each device.

    Numbers have few bits, so that sums are exact in any order.
    """
    values, devices = list(inputs), group.devices
    for kind, first, second, where in program:
        x, y = values[first % len(values)], values[second % len(values)]
        target = where % len(devices)
        if kind % 11 == 0:
            values.append(x.to(devices[target]))
        elif kind % 11 == 1:
            values.append((x + y.to(x.device)).clip(-99, 99))
        elif kind % 11 == 2:
            values.append((x * 0.5).to(devices[target]).T)
        elif kind % 11 == 3:
            values.append(x.T.to(devices[target]))
        elif kind % 11 == 4:
            values.append((x[1:].sum(axis=0).to(devices[target]) - y.to(devices[target])).clip(-99, 99))
        elif kind % 11 == 5:
            states[target].add_(x.to(devices[target])).clip_(-99, 99)
            values.append(states[target] * 2)
        elif kind % 11 == 6:
            states[target][1:] = y.to(devices[target])[1:]
        else:
            values += _combined(kind % 11 - 7, x, values[first:] + values, target, group)
    return values


def _combined(kind: int, x: Any, values: list[Any], root: int, group: Group) -> list[Any]:
    """Results of a collective, on some or all devices. Each member gives a value that it has, if there is one."""
    if kind == 0:
        return group.broadcast(x.to(group.devices[root]), root)
    given = [next((v for v in values if v.device is d), x.to(d)) for d in group.devices]
    if kind == 1:
        return [v.clip(-99, 99) for v in group.all_reduce([v * 0.5 for v in given])]
    if kind == 2:
        whole = group.gather([v.T for v in given], root)
        return [] if whole is None else [whole[root : root + _LENGTH]]
    return [v.T for v in group.all_gather([v[:root] for v in given])[:1] if v.shape == (_LENGTH, _LENGTH)] + given[:1]


def _tensors(rng: np.random.Generator, devices: Sequence[Device]) -> list[ph.Tensor]:
    arrays = [rng.integers(-8, 8, (_LENGTH, _LENGTH)).astype(np.float32) for _ in devices]
    return [ph.Tensor(a, device=d) for a, d in zip(arrays, devices, strict=True)]


def _check(program: Sequence[Instruction], devices: Sequence[Device], calls: int = 3) -> Executable | None:
    """Compare a captured program with the same run op by op, bit by bit: it adds and halves small integers."""
    eager, captured = (_tensors(np.random.default_rng(0), devices) for _ in range(2))
    group = Group(devices)
    step = ph.jit(lambda *xs: _run(program, xs, captured, group), warm_up=False)
    for call in range(calls):
        rng, again = (np.random.default_rng(1 + call) for _ in range(2))
        expected = _run(program, _tensors(rng, devices), eager, group)
        found = step(*_tensors(again, devices))
        for got, wanted in zip([*found, *captured], [*expected, *eager], strict=True):
            assert got.device is wanted.device
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    return executable_of(step) if step.steps else None


_FEW = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@_FEW
@given(program=_programs, count=st.integers(2, 4))
def test_random_steps_on_devices_of_the_host(program: list[Instruction], count: int) -> None:
    _check(program, [*map(Device, _NUMPY), numpy_like()][:count])


@pytest.fixture(scope="module")
def mixed() -> list[Device]:
    """Simulated devices of two machines, those of one copy from each other; one of the host; all drivers for processors.

    No other test has a machine with that much memory, of which a device could be left in use.
    """
    peers = [Device.opened(f"sim:{i}", sim_backend(f"teaching*2:{i},memory=65MiB")) for i in range(2)]
    return [*peers, Device("numpy"), sim(), *(Device(c.name) for c in registry().probe("opencl"))]


@settings(_FEW, max_examples=6)
@given(program=_programs, seed=st.integers(0, 99))
def test_random_steps_on_mixed_devices(program: list[Instruction], seed: int, mixed: list[Device]) -> None:
    order = np.random.default_rng(seed).permutation(len(mixed))
    _check(program, [mixed[i] for i in order[: 2 + seed % 3]])


_LONG: list[Instruction] = [
    (kind, first, second, where)
    for kind, first, second, where in np.random.default_rng(5).integers(0, 99, (60, 4)).tolist()
]


def test_a_long_step_on_all_devices(mixed: list[Device]) -> None:
    executable = _check(_LONG, mixed, 6)
    assert executable is not None
    assert {n.op for n in executable.graph.nodes} >= set(_PARTS), "all ways to cross"


_PARTS = (SEND, RECEIVE, START, COLLECTIVE, PEER_COPY, JOIN)


@settings(_FEW, max_examples=40)
@given(program=_programs, count=st.integers(2, 4))
def test_lanes_follow_one_order(program: list[Instruction], count: int) -> None:
    """The proof that lanes never wait for each other for ever and that plans of memory hold, checked on real plans."""
    executable = _check(program, [*map(Device, _NUMPY), numpy_like()][:count], 1)
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
    lanes: dict[Any, list[int]] = {}
    for p in executable.partitions:
        lane = lanes.setdefault(p.lane or p.device, [])
        lane += [positions[id(n)] for n in p.nodes if n is not None]
    assert all(lane == sorted(lane) for lane in lanes.values())


def _assert_prompt(graph: Graph, send: Node, receive: int) -> None:
    """A value is sent as soon as it is there and received when it is used: nothing of the same device runs in between."""

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
    """What a collective reads or writes on a device is not written, nor its results read, from the start to the join."""
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
    """The memory of a value: the identity of its block, the first byte and the byte after the last."""
    ref = executable._refs[value]
    if ref is None or not ref.size:
        return 0, 0, 0
    size = ref.dtype.itemsize
    last = sum((n - 1) * s for n, s in zip(ref.shape, ref.strides, strict=True))
    return id(ref.handle), ref.offset * size, (ref.offset + last + 1) * size


def _overlap(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def test_empty_and_strided_values_cross() -> None:
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
        there = ph.Tensor(x, device=source)
        moved, strided = there.to(target), there.permute((2, 0, 1)).to(target)
        there.mul_(0)
        np.testing.assert_array_equal(moved.numpy(), x)
        np.testing.assert_array_equal(strided.numpy(), x.transpose(2, 0, 1))


def test_a_value_that_is_passed_on_at_once_is_there() -> None:
    """Nothing runs between the arrival of a value and its departure, on streams of their own."""
    a, b = (Device.opened(f"sim:{i}", sim_backend(f"teaching*2:{i},memory=65MiB")) for i in range(2))
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


# --- concurrency ------------------------------------------------------------------------------------------------------


class Meets(FaultyKernels):
    """Its softmax returns when that of another device runs at the same time."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            self.barrier.wait(20)
            launch(*args)

        return SimpleLaunch("meeting", run)


def test_devices_work_at_the_same_time() -> None:
    barrier = threading.Barrier(3)
    devices = [numpy_like(Meets(barrier)) for _ in range(3)]
    step = ph.jit(lambda *xs: sum(x.softmax(axis=0).to(devices[0]) for x in xs), warm_up=False)
    threads: list[set[threading.Thread]] = []
    for _ in range(3):
        x = [ph.ones((4, 4), device=d) for d in devices]
        np.testing.assert_allclose(step(*x).numpy(), np.full((4, 4), 0.75))
        threads.append({t for t in threading.enumerate() if t.name.startswith("polyhal-lane")})
    assert threads[0] == threads[1] == threads[2], "threads are kept"


class HoldsReads(AsyncReadBackend):
    """Delivers what was read only when it works on something else."""

    held: list[Callable[[], None]]

    def __init__(self) -> None:
        super().__init__()
        self.held = []

    def copy_from_device_async(self, src: Any, offset: int, dst: memoryview) -> ReadEvent:
        content, event = src[offset : offset + dst.nbytes].copy(), ReadEvent()

        def deliver() -> None:
            dst[:] = content.data
            event.completion.set(None)

        self.held.append(deliver)
        return event

    def unary(self, op: str, x: Any, out: Any) -> None:
        super().unary(op, x, out)
        while self.held:
            self.held.pop()()


def test_a_send_does_not_stop_its_lane() -> None:
    """And the value that is read was there when it was sent, although its memory is used again at once."""
    source, target = Device.opened("holds", HoldsReads()), numpy_like()

    def step(x: ph.Tensor) -> tuple[ph.Tensor, ph.Tensor]:
        doubled = x * 2
        moved = doubled.to(target)
        return (doubled + 1).exp(), moved + 1

    captured = ph.jit(step, warm_up=False)
    for value in range(3):
        x = np.full((4, 4), value, np.float32)
        here, there = captured(ph.Tensor(x, device=source))
        np.testing.assert_allclose(here.numpy(), np.exp(2 * x + 1), rtol=1e-6)
        np.testing.assert_array_equal(there.numpy(), 2 * x + 1)


class Hears(FaultyKernels):
    """Its softmax tells that it has run."""

    def __init__(self, ran: threading.Event) -> None:
        super().__init__()
        self.ran = ran

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            launch(*args)
            self.ran.set()

        return SimpleLaunch("heard", run)


class Patient(LocalCommunicator):
    """Carries out a collective when work that was enqueued later has run, or fails."""

    def __init__(self, devices: Sequence[Device], ran: threading.Event) -> None:
        super().__init__(devices)
        self.ran = ran
        self.error: Exception | None = None

    def run(self, collective: Any, sources: Any, targets: Any) -> None:
        if self.error is not None:
            raise self.error
        assert self.ran.wait(20)
        self.ran.clear()
        super().run(collective, sources, targets)


def test_collectives_run_beside_other_work() -> None:
    ran = threading.Event()
    devices = [numpy_like(Hears(ran)), numpy_like()]
    group = Group(devices)
    communicator = group.communicator = Patient(devices, ran)

    def step(x: ph.Tensor, y: ph.Tensor) -> tuple[ph.Tensor, ...]:
        a, b = group.all_reduce([x + 1, y + 1])
        return (x.softmax(axis=0), a, b)

    captured = ph.jit(step, warm_up=False)
    xs = [ph.full((4,), float(i), device=d) for i, d in enumerate(devices)]
    for _ in range(3):
        assert [v.tolist() for v in captured(*xs)] == [[0.25] * 4, [3] * 4, [3] * 4]
    communicator.error = BackendError("the link is down")
    with pytest.raises(BackendError, match="the link is down"):
        captured(*xs)
    communicator.error = None
    ran.clear()
    for _ in range(2):
        assert [v.tolist() for v in captured(*xs)] == [[0.25] * 4, [3] * 4, [3] * 4]


def test_lanes_run_in_turn_while_they_are_looked_at() -> None:
    devices = [Device("numpy"), sim(), numpy_like()]
    group = Group(devices)
    step = ph.jit(lambda *xs: [x.sum().to(devices[0]) for x in group.all_reduce([x.log() for x in xs])], warm_up=False)
    xs = [ph.full((4,), 2.0, device=d) for d in devices]
    expected = [v.item() for v in step(*xs)]
    with step.profile() as profile:
        assert [v.item() for v in step(*xs)] == expected
    assert {"log", "collective", "send", "receive"} <= {t.op for t in profile.nodes}
    assert "all_reduce" in step.explain()
    with ph.check("nan"):
        assert [v.item() for v in step(*xs)] == expected
        with pytest.raises(NonFiniteError, match="log"):
            step(*[-x for x in xs])
    with ph.check("reference"):
        assert [v.item() for v in step(*xs)] == expected
    assert [v.item() for v in step(*xs)] == expected


def test_a_placement_says_what_runs_where_and_what_crosses() -> None:
    peers = [Device.opened(f"sim:{i}", sim_backend(f"teaching*2:{i},memory=65MiB")) for i in range(2)]
    a, b, c = Device("numpy"), *peers
    group = Group([a, b])

    def step(x: ph.Tensor, y: ph.Tensor, z: ph.Tensor) -> tuple[ph.Tensor, ...]:
        u, _ = group.all_reduce([x, y])
        return u.exp(), (y * 2).to(c) + z, z.to(a).log(), z[:2].to(a)

    captured = ph.jit(step, warm_up=False)
    xs = [ph.ones((4, 8), device=d) for d in (a, b, c)]
    for _ in range(2):
        captured(*xs)
    executable = executable_of(captured)
    with executable.record_lanes() as spans:
        captured(*xs)
    found = captured.steps[0].placement()
    assert {n.op.name: d for n, d in found.nodes if n.op.name in ("exp", "multiply", "log")} == {
        "exp": a, "multiply": b, "log": a
    }  # fmt: skip
    assert found.traffic == {(b, c): 4 * 8 * 4, (c, a): 4 * 8 * 4 + 2 * 8 * 4}
    assert found.collectives == {"all_reduce": (1, 2 * 2 * 4 * 8 * 4)}
    assert {t.lane for t in found.lanes} == {"numpy", "sim:0", "sim:1", "sim:0 to sim:1", "collectives"}
    assert all(t.runs == 3 and t.enqueueing >= 0 and t.waiting >= 0 for t in found.lanes)
    assert "sim:0 to sim:1: 128 B in each run" in str(found)
    assert {t.lane for t in found.lanes} == {s.lane for s in spans}
    assert [op for s in spans if s.lane == "sim:0 to sim:1" for op in s.ops] == ["peer_copy"]
    assert all(0 <= s.waited <= s.end - s.begin for s in spans)


# --- threads ----------------------------------------------------------------------------------------------------------

_MODE = contextvars.ContextVar("mode", default="none")
_seen: list[tuple[str, str]] = []


class Looks(FaultyKernels):
    """Its softmax notes the caller's context."""

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            _seen.append((_MODE.get(), np.geterr()["over"]))
            launch(*args)

        return SimpleLaunch("looking", run)


def test_lanes_have_the_context_of_their_caller() -> None:
    a, b = numpy_like(Looks()), numpy_like(Looks())
    step = ph.jit(lambda x, y: (x.softmax(axis=0), y.softmax(axis=0)), warm_up=False)
    xs = [ph.ones((3,), device=d) for d in (a, b)]
    step(*xs)
    _seen.clear()
    token = _MODE.set("special")
    with np.errstate(over="raise"):
        step(*xs)
    _MODE.reset(token)
    assert _seen == [("special", "raise")] * 2


def test_lanes_work_on_the_streams_of_their_caller() -> None:
    devices = [sim(), sim()]
    step = ph.jit(lambda x, y: (x + 1, (x * 2).to(devices[1]) + y), warm_up=False)
    backends: list[Any] = [d.backend for d in devices]
    xs = [ph.ones((3,), device=d) for d in devices]
    streams = [d.stream() for d in devices]
    for used in (False, True):
        if used:
            for s in streams:
                s.__enter__()
        step(*xs)
        before = [[q.written for q in b.driver.queues] for b in backends]
        a, b = step(*xs)
        after = [[q.written for q in b.driver.queues] for b in backends]
        grown = [[m > n for m, n in zip(x, y, strict=True)] for x, y in zip(after, before, strict=True)]
        assert grown == [[not used, used]] * 2
        if used:
            for s in streams:
                s.__exit__()
        assert a.tolist() == [2] * 3
        assert b.tolist() == [3] * 3


def test_two_threads_run_steps_at_the_same_time() -> None:
    devices = [*map(Device, _NUMPY)]
    results: list[bool] = []

    def work(seed: int) -> None:
        program = np.random.default_rng(seed).integers(0, 99, (20, 4)).tolist()
        _check([tuple(i) for i in program], devices, 8)  # type: ignore[misc]
        results.append(True)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 3


_PROGRAM = """
import os, sys
import numpy as np
import polyhal as ph
a, b = ph.Device("numpy"), ph.Device(sys.argv[1])
step = ph.jit(lambda x: ((x + 1).to(b) * 2, x - 1), warm_up=False)
x = ph.ones((64, 64), device=a)
for _ in range(3):
    y, z = step(x)
print(y.sum().item(), z.sum().item(), flush=True)
if sys.argv[2] == "fork":
    if os.fork() == 0:
        y, z = step(x)
        print("child", y.sum().item(), z.sum().item(), flush=True)
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
if sys.argv[2] == "late":
    import atexit
    atexit.register(lambda: print("late", step(x)[0].sum().item(), flush=True))
"""


@pytest.mark.parametrize("device", ["numpy:no_f64", "sim"])
@pytest.mark.parametrize("how", ["end", "fork", "late"])
def test_threads_end_with_the_program_and_not_with_its_children(device: str, how: str) -> None:
    if how == "fork" and (device == "sim" or not hasattr(os, "fork")):
        pytest.skip("a device that does not survive a fork")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _PROGRAM, device, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    expected = {"end": [], "fork": ["child 16384.0 0.0", "0"], "late": ["late 16384.0"]}[how]
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (["16384.0 0.0", *expected], "", 0)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "error"), [(RaisesAtLaunch, BackendError), (LosesTheDevice, DeviceLostError)])
@pytest.mark.parametrize("first", [True, False])
def test_an_error_in_a_lane_stops_the_others(
    backend: type[FaultyKernels], error: type[Exception], first: bool
) -> None:
    faulty, sound = numpy_like(backend()), numpy_like()
    a, b = (faulty, sound) if first else (sound, faulty)

    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        x, y = x + 1, y + 1
        return x.softmax(axis=-1).to(b) + y.softmax(axis=-1) + (y * 2).to(a).to(b)

    captured = ph.jit(step, warm_up=False)
    xs = [ph.ones((3, 4), device=d) for d in (a, b)]
    for _ in range(3):
        with pytest.raises(error):
            captured(*xs)
    assert _check(_LONG[:20], [a, b])


def test_a_step_is_right_again_after_a_transfer_that_failed() -> None:
    devices = [sim(), sim()]
    backends: list[Any] = [d.backend for d in devices]
    step = ph.jit(lambda x, y: (x + 1).to(devices[1]) * y + (x * 2).to(devices[1]), warm_up=False)
    xs = [ph.Tensor(np.full((4, 4), v, np.float32), device=d) for v, d in zip((2, 3), devices, strict=True)]
    for device in (0, 1):
        assert step(*xs).tolist() == [[13.0] * 4] * 4
        backends[device].faults.inject("corrupt_transfer", name="device to host" if device == 0 else "host to device")
        with pytest.raises(TransferError):
            step(*xs).numpy()
    for _ in range(2):
        assert step(*xs).tolist() == [[13.0] * 4] * 4


class Interrupts(FaultyKernels):
    """Its softmax is where the user presses Ctrl-C."""

    pressed = False

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            if self.pressed:
                self.pressed = False
                raise KeyboardInterrupt
            launch(*args)

        return SimpleLaunch("interrupted", run)


@pytest.mark.parametrize("position", [0, 1])
def test_ctrl_c_stops_all_lanes(position: int) -> None:
    backend = Interrupts()
    devices = [numpy_like(), numpy_like()]
    devices[position] = numpy_like(backend)
    step = ph.jit(lambda x, y: x.softmax(axis=0).to(devices[1]) + y.softmax(axis=0), warm_up=False)
    xs = [ph.zeros((4,), device=d) for d in devices]
    for _ in range(2):
        step(*xs)
        backend.pressed = True
        with pytest.raises(KeyboardInterrupt):
            step(*xs)
    assert step(*xs).tolist() == [0.5] * 4
