"""Lanes of captured steps work at the same time, each where the placement of the step says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from async_reads import AsyncReadBackend, ReadEvent
from faulty_kernels import FaultyKernels

import polyhal as ph
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, NonFiniteError
from polyhal.hal.protocol import Launch, SimpleLaunch
from polyhal.hal.system.communicators.local import LocalCommunicator
from polyhal.parallel import Group

from .worker_devices import executable_of, numpy_like, sim, sim_peers

pytestmark = pytest.mark.usefixtures("workers_under_a_limit")


class Meets(FaultyKernels):
    """Backend whose softmax blocks until the softmax of every other device runs."""

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
        threads.append({t for t in threading.enumerate() if t.name.startswith("polyhal-worker")})
    assert threads[0] == threads[1] == threads[2], "threads are kept"


class HoldsReads(AsyncReadBackend):
    """Backend that delays reads until it runs another op."""

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


def test_a_send_does_not_block_its_worker() -> None:
    """The read is ordered before later work, although that reuses the memory immediately."""
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
    """Backend whose softmax sets an event after it has run."""

    def __init__(self, ran: threading.Event) -> None:
        super().__init__()
        self.ran = ran

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            launch(*args)
            self.ran.set()

        return SimpleLaunch("heard", run)


class Patient(LocalCommunicator):
    """Communicator that runs a collective after work that was enqueued later, or fails."""

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


def test_collectives_overlap_with_other_work() -> None:
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


def test_observed_steps_run_on_one_thread() -> None:
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


def test_a_placement_has_devices_of_ops_and_traffic() -> None:
    a, b, c = Device("numpy"), *sim_peers()
    group = Group([a, b])

    def step(x: ph.Tensor, y: ph.Tensor, z: ph.Tensor) -> tuple[ph.Tensor, ...]:
        u, _ = group.all_reduce([x, y])
        return u.exp(), (y * 2).to(c) + z, z.to(a).log(), z[:2].to(a)

    captured = ph.jit(step, warm_up=False)
    xs = [ph.ones((4, 8), device=d) for d in (a, b, c)]
    for _ in range(2):
        captured(*xs)
    executable = executable_of(captured)
    with executable.record_workers() as spans:
        captured(*xs)
    found = captured.steps[0].placement()
    assert {n.op.name: d for n, d in found.nodes if n.op.name in ("exp", "multiply", "log")} == {
        "exp": a,
        "multiply": b,
        "log": a,
    }
    assert found.traffic == {(b, c): 4 * 8 * 4, (c, a): 4 * 8 * 4 + 2 * 8 * 4}
    assert found.collectives == {"all_reduce": (1, 2 * 2 * 4 * 8 * 4)}
    assert {t.worker for t in found.workers} == {"numpy", "sim:0", "sim:1", "sim:0 to sim:1", "collectives"}
    assert all(t.runs == 3 and t.enqueueing >= 0 and t.waiting >= 0 for t in found.workers)
    assert "sim:0 to sim:1: 128 B in each run" in str(found)
    assert {t.worker for t in found.workers} == {s.worker for s in spans}
    assert [op for s in spans if s.worker == "sim:0 to sim:1" for op in s.ops] == ["peer_copy"]
    assert all(0 <= s.waited <= s.end - s.begin for s in spans)
