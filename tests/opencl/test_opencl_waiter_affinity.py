"""Threads that wait for a driver that computes in them keep to the core that its workers leave free."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from polyhal.backends.opencl.waiter_affinity import Seat, seat_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are bound on Linux only")


@pytest.fixture
def cores() -> list[int]:
    """The cores of this process, of which there must be two."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        pytest.skip("one core")
    return found


@pytest.fixture
def seat(cores: list[int]) -> Iterator[Seat]:
    """A seat beside workers that are bound to all cores but the last."""
    made = Seat()
    begun, done = threading.Barrier(len(cores)), threading.Event()

    def work(core: int) -> None:
        os.sched_setaffinity(0, {core})
        begun.wait()
        done.wait()

    workers = [threading.Thread(target=work, args=(core,)) for core in cores[:-1]]
    for worker in workers:
        worker.start()
    begun.wait()
    yield made
    done.set()
    for worker in workers:
        worker.join()


def test_a_waiting_thread_keeps_to_the_free_core(seat: Seat, cores: list[int]) -> None:
    with seat.taken():
        assert os.sched_getaffinity(0) == set(cores)  # Workers are looked for at the end of a wait.
    with seat.taken():
        assert os.sched_getaffinity(0) == {cores[-1]}
    assert os.sched_getaffinity(0) == set(cores)


def test_a_thread_that_the_user_has_bound_stays_where_it_is(seat: Seat, cores: list[int]) -> None:
    with seat.taken():
        pass
    os.sched_setaffinity(0, {cores[0]})
    try:
        with seat.taken():
            assert os.sched_getaffinity(0) == {cores[0]}
    finally:
        os.sched_setaffinity(0, set(cores))


def test_without_bound_workers_no_core_is_chosen(cores: list[int]) -> None:
    seat = Seat()
    for _ in range(20):
        with seat.taken():
            assert os.sched_getaffinity(0) == set(cores)


def test_only_drivers_that_compute_in_waiting_threads_have_a_seat() -> None:
    assert seat_for("Intel(R) OpenCL", True) is not None
    assert seat_for("Intel(R) OpenCL Graphics", False) is None
    assert seat_for("Portable Computing Language", True) is None
