"""Threads that wait for a driver, which also executes kernels in them, are bound to the core without a worker."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from polyhal.backends.opencl.waiter_affinity import WaiterAffinity, waiter_affinity
from polyhal.backends.opencl_c import quirks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are bound on Linux only")


@pytest.fixture
def cores() -> list[int]:
    """Return the cores of this process, at least two."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        pytest.skip("one core")
    return found


@pytest.fixture
def affinity(cores: list[int]) -> Iterator[WaiterAffinity]:
    """Return the affinity with workers bound to all cores but the last."""
    affinity = WaiterAffinity()
    begun, done = threading.Barrier(len(cores)), threading.Event()

    def work(core: int) -> None:
        os.sched_setaffinity(0, {core})
        begun.wait()
        done.wait()

    workers = [threading.Thread(target=work, args=(core,)) for core in cores[:-1]]
    for worker in workers:
        worker.start()
    begun.wait()
    yield affinity
    done.set()
    for worker in workers:
        worker.join()


def test_a_waiting_thread_is_bound_to_the_free_core(affinity: WaiterAffinity, cores: list[int]) -> None:
    with affinity.bound():
        assert os.sched_getaffinity(0) == set(cores)  # Workers are searched for at the end of a wait.
    with affinity.bound():
        assert os.sched_getaffinity(0) == {cores[-1]}
    assert os.sched_getaffinity(0) == set(cores)


def test_a_thread_that_the_user_has_bound_keeps_its_core(affinity: WaiterAffinity, cores: list[int]) -> None:
    with affinity.bound():
        pass
    os.sched_setaffinity(0, {cores[0]})
    try:
        with affinity.bound():
            assert os.sched_getaffinity(0) == {cores[0]}
    finally:
        os.sched_setaffinity(0, set(cores))


def test_without_bound_workers_no_core_is_chosen(cores: list[int]) -> None:
    affinity = WaiterAffinity()
    for _ in range(20):
        with affinity.bound():
            assert os.sched_getaffinity(0) == set(cores)


def test_only_drivers_that_execute_kernels_in_waiting_threads_need_it() -> None:
    assert quirks.match("Intel(R) OpenCL", "", "", cpu=True).pin_waiting_thread
    assert not quirks.match("Intel(R) OpenCL Graphics", "", "", cpu=False).pin_waiting_thread
    assert not quirks.match("Portable Computing Language", "", "", cpu=True).pin_waiting_thread
    assert waiter_affinity(True) is not None
    assert waiter_affinity(False) is None
