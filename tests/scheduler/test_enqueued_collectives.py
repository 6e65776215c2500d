"""Collectives on compute streams: each device enqueues its own part in order with its other work."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.collectives.collective import Kind
from polyhal.hal.compile.scheduler import device_workers
from polyhal.hal.compile.scheduler.cross_device import COLLECTIVE, ENQUEUE, JOIN, START
from polyhal.nn.utils import clip_grad_norm_
from polyhal.parallel import DataParallel, Group
from polyhal.steps.jit import Jitted

from .random_steps import Instruction, check, programs
from .rendezvous_devices import RendezvousCommunicator, rendezvous_devices
from .worker_devices import SECONDS, executable_of

pytestmark = pytest.mark.usefixtures("workers_under_a_limit")


@pytest.fixture(autouse=True)
def _each_on_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the joint start of workers: these devices compute synchronously, so one thread cannot begin for all of them."""
    monkeypatch.setattr(device_workers, "_LEADING", 0)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=programs, count=st.integers(2, 4))
def test_random_steps(program: list[Instruction], count: int) -> None:
    executable = check(program, rendezvous_devices(count))
    assert executable is not None
    members = [n for n in executable.graph.nodes if n.op is ENQUEUE]
    # All devices reach the collectives in one order, so that they cannot deadlock.
    assert [n.params[-1] for n in members] == [*range(count)] * (len(members) // count)
    assert not {n.op for n in executable.graph.nodes} & {START, COLLECTIVE, JOIN}, "collectives are not overlapped"


def trained(devices: list[ph.Device], **options: Any) -> tuple[list[np.ndarray], Any]:
    """Return losses and weights after some captured steps, and the step."""
    ph.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3)).to("numpy")
    many = DataParallel(model, devices, bucket_bytes=2000, **options)
    optimizer = optim.AdamW(many.parameters(), lr=0.01)
    rng = np.random.default_rng(4)
    x, y = (ph.Tensor(rng.standard_normal((10, n)).astype(np.float32), device=devices[0]) for n in (6, 3))

    @ph.jit(warm_up=False)
    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss: ph.Tensor = many.map(lambda m, x, y: ((m(x) - y) ** 2).mean(), x, y)
        loss.backward()
        clip_grad_norm_(many.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = [step(x, y).numpy() for _ in range(5)]
    return [*losses, *[p.numpy() for p in many.parameters()]], (step, x, y)


@pytest.mark.parametrize(
    "options", [{}, {"shares": (2, 1, 2)}, {"shard": "parameters"}], ids=["even", "uneven", "sharded"]
)
def test_training_is_bitwise_identical_with_overlapped_ones(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overlapped collectives add in the same order."""
    found, (step, *_) = trained(rendezvous_devices(3), **options)
    monkeypatch.setattr(RendezvousCommunicator, "on_compute_stream", False)
    expected, _ = trained(rendezvous_devices(3), **options)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    communicator = next(n for n in executable_of(step).graph.nodes if n.op is ENQUEUE).params[1]
    assert isinstance(communicator, RendezvousCommunicator)
    assert {c.kind for c in communicator.completed} == {Kind.ALL_GATHER, Kind.REDUCE_SCATTER}


def test_gradients_are_reduced_before_earlier_layers_are_done() -> None:
    _, (step, *_) = trained(rendezvous_devices(2))
    nodes = executable_of(step).graph.nodes
    sums = [k for k, n in enumerate(nodes) if n.op is ENQUEUE and n.params[0].kind is Kind.REDUCE_SCATTER]
    products = [k for k, n in enumerate(nodes) if n.op.family == "contraction"]
    assert sums[0] < products[-1]


def test_a_single_thread_runs_the_parts_of_all_participants() -> None:
    """A profiled run uses one thread, which must not block on participants that it has not reached."""
    expected, _ = trained(rendezvous_devices(2))
    devices = rendezvous_devices(2)
    with Jitted.profile() as profile:
        found, (step, *_) = trained(devices)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    communicator = next(n for n in executable_of(step).graph.nodes if n.op is ENQUEUE).params[1]
    assert not communicator.completed
    assert profile.runs == 5


def test_concurrent_steps_do_not_interleave_their_collectives() -> None:
    """Otherwise devices would reach the collectives of two steps in different orders and deadlock."""
    devices = rendezvous_devices(2)
    group = Group(devices)
    step = ph.jit(lambda a, b: [x + 1 for _ in range(3) for x in group.all_reduce([a * 2, b * 2])], warm_up=False)
    with ThreadPoolExecutor(4) as threads:

        def run(n: int) -> list[float]:
            results = step(*[ph.full((5,), float(n), device=d) for d in devices])
            return [r.tolist()[0] for r in results]

        assert list(threads.map(run, range(40))) == [[4 * n + 1] * 6 for n in range(40)]


@pytest.mark.parametrize("check", ["nan", "reference"])
def test_checks_read_complete_results(check: str) -> None:
    expected, _ = trained(rendezvous_devices(2))
    with ph.check(check):
        found, _ = trained(rendezvous_devices(2))
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_activity_and_placement_count_a_collective_once() -> None:
    group = Group(rendezvous_devices(3))
    step = ph.jit(lambda *xs: [x * 2 for x in group.all_reduce([x @ x for x in xs])], warm_up=False)
    xs = [ph.ones((32, 32), device=d) for d in group.devices]
    step(*xs)
    with step.activity() as seen:
        for _ in range(3):
            results = step(*xs)
    assert all((x.numpy() == 192).all() for x in results)
    nbytes = 32 * 32 * 4
    (collective,) = seen.to_json()["collectives"]
    assert (collective["kind"], collective["bytes"], collective["count"]) == ("all_reduce", nbytes, 1)
    assert collective["seconds"] > 0
    assert executable_of(step).placement().collectives == {"all_reduce": (1, 6 * nbytes)}


def test_a_failed_worker_still_enqueues_its_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that fails before a collective that the others have enqueued still enqueues its part."""
    begun: list[int] = []
    others_have_begun = threading.Event()
    devices = rendezvous_devices(3)
    group = Group(devices)

    def run_member(self: Any, i: int, *args: Any) -> None:
        """Return at once, as for asynchronous devices."""
        begun.append(i)
        if len(begun) == 2:
            others_have_begun.set()

    step = ph.jit(lambda *xs: [x * 2 for x in group.all_reduce([x.exp() for x in xs])], warm_up=False)
    xs = [ph.zeros((4,), device=d) for d in devices]
    expected = [x.numpy() for x in step(*xs)]
    executable = executable_of(step)
    assert executable.workers is not None
    worker = executable.workers.all[1]
    assert worker.device is devices[1]

    def fails() -> None:
        assert others_have_begun.wait(SECONDS)
        raise RuntimeError("no luck")

    first, worker.actions[0] = worker.actions[0], fails
    with monkeypatch.context() as patched:
        patched.setattr(RendezvousCommunicator, "run_member", run_member)
        with pytest.raises(RuntimeError, match="no luck"):
            step(*xs)
    assert sorted(begun[:2]) == [0, 2]
    assert begun[2:] == [1], "it is enqueued after the run has failed"
    worker.actions[0] = first
    for _ in range(2):
        assert all(np.array_equal(a.numpy(), b) for a, b in zip(step(*xs), expected, strict=True))
