"""The memory pool: reuse, release, retry when memory runs out, and statistics."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import polyhal
from polyhal.backends.numpy.backend import create
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.pool import Pool, bucket
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, OutOfMemoryError


@pytest.fixture
def tiny() -> Device:
    """Open a device with 1 MiB of memory and blocks of at most 512 KiB."""
    return Device.opened("numpy:tiny_mem", create("tiny_mem"))


def test_buckets_waste_at_most_an_eighth() -> None:
    assert bucket(0) == 0
    assert bucket(1) == 256
    for n in [*range(1, 5000, 7), 10**6, 10**9 + 1]:
        size = bucket(n)
        assert size >= n
        assert size == 256 or size - n <= max(n // 8, 256)
        assert bucket(size) == size


def test_a_buffer_with_an_interrupted_constructor_is_released_silently() -> None:
    """For example by Ctrl-C, before `__init__` has set attributes."""
    Buffer.__new__(Buffer).__del__()


def test_blocks_return_when_the_globals_of_modules_are_none(monkeypatch: pytest.MonkeyPatch, tiny: Device) -> None:
    """At the interpreter's exit, Python replaces them while tensors in reference cycles are still alive."""
    buffer = tiny.pool.take(4096)
    monkeypatch.setattr("polyhal.hal.core.memory.pool.heappush", None)
    del buffer
    assert tiny.memory_stats().largest_free == 4096


def test_blocks_are_reused() -> None:
    pool = Device.opened("numpy", create("")).pool
    first = pool.take(bucket(1000))
    handle = first.handle
    del first
    second = pool.take(bucket(900))
    assert second.handle is handle
    stats = pool.stats()
    assert (stats.allocations, stats.reuses) == (1, 1)


def test_memory_that_is_released_twice_is_an_error() -> None:
    backend = create("tiny_mem")
    handle = backend.allocate(4096)
    backend.deallocate(handle)
    with pytest.raises(BackendError, match="released before"):
        backend.deallocate(handle)
    assert backend.memory_available() == 1 << 20


def test_statistics(tiny: Device) -> None:
    a, b = tiny.pool.take(1024), tiny.pool.take(4096)
    assert (tiny.memory_stats().used, tiny.memory_stats().reserved, tiny.memory_stats().peak) == (5120, 5120, 5120)
    del b
    stats = tiny.memory_stats()
    assert (stats.used, stats.reserved, stats.peak, stats.largest_free) == (1024, 5120, 5120, 4096)
    tiny.pool.reset_peak()
    assert tiny.memory_stats().peak == 1024
    tiny.empty_cache()
    assert tiny.memory_stats().reserved == 1024
    del a
    tiny.empty_cache()
    assert tiny.memory_stats().reserved == 0
    assert tiny.backend.memory_available() == 1 << 20


def test_running_out_drains_the_pool_and_tries_again(tiny: Device) -> None:
    blocks = [tiny.pool.take(bucket(200_000)) for _ in range(4)]
    del blocks
    assert tiny.memory_stats().reserved > 800_000
    big = tiny.pool.take(bucket(500_000))
    assert big.nbytes >= 500_000
    assert tiny.memory_stats().reserved == big.nbytes


def test_the_error_of_running_out_states_the_sizes(tiny: Device) -> None:
    kept = tiny.pool.take(bucket(400_000))
    with pytest.raises(OutOfMemoryError) as caught:
        tiny.pool.take(bucket(700_000))
    text = str(caught.value)
    assert f"no memory for {bucket(700_000) / 2**20:.2f} MiB" in text
    assert f"{kept.nbytes / 2**20:.2f} MiB are in use" in text
    assert "the largest single block is 0.50 MiB" in text
    assert "numpy:tiny_mem" in text
    assert isinstance(caught.value, MemoryError)
    del kept


def test_a_tensor_op_that_runs_out_leaves_everything_usable(tiny: Device) -> None:
    x = polyhal.ones((300, 300), device=tiny)
    used = tiny.memory_stats().used
    with pytest.raises(OutOfMemoryError):
        [x + i for i in range(10)]
    gc.collect()
    assert tiny.memory_stats().used == used
    np.testing.assert_array_equal((x + x).numpy(), np.full((300, 300), 2.0, np.float32))


@pytest.mark.parametrize(
    "work",
    [
        lambda x: (x @ x).sum().backward(),
        lambda x: x.softmax(axis=-1).log().mean().backward(),
        lambda x: (x[1:, ::2] * 2).reshape(-1).sum().backward(),
        lambda x: polyhal.grad((x * x * x).sum(), [x], create_graph=True)[0].sum().backward(),
    ],
    ids=["matmul", "softmax", "views", "second order"],
)
def test_nothing_leaks(work: Callable[[polyhal.Tensor], None], tiny: Device) -> None:
    """A forward and a backward pass release all memory by reference counting, without garbage collection."""
    x = polyhal.ones((16, 16), device=tiny, requires_grad=True)
    work(x)
    x.grad = None
    gc.collect()
    used = tiny.memory_stats().used
    gc.disable()
    try:
        for _ in range(3):
            work(x)
            x.grad = None
            assert tiny.memory_stats().used == used
    finally:
        gc.enable()


def test_a_failed_call_keeps_no_memory(tiny: Device) -> None:
    x = polyhal.ones((8, 8), device=tiny)
    used = tiny.memory_stats().used
    with pytest.raises(ValueError, match="inner lengths differ"):
        x @ polyhal.ones((7, 8), device=tiny)
    assert tiny.memory_stats().used == used


def test_blocks_may_be_released_by_other_threads() -> None:
    pool: Pool = Device.opened("numpy", create("")).pool
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for k in range(2000):
                held = [pool.take(bucket(100 + k % 7 * 300)) for _ in range(3)]
                del held
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    pool.drain()
    assert pool.stats().reserved == 0


def test_threads_that_allocate_at_the_same_time_receive_separate_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*numbers: int) -> int:
        time.sleep(1e-4)  # lets another thread allocate in the middle of an allocation
        return max(numbers)

    pool: Pool = Device.opened("numpy", create("")).pool
    monkeypatch.setattr("polyhal.hal.core.memory.pool.max", late, raising=False)
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: [pool.take(256) for _ in range(25)], range(8)))
    numbers = {block.number for blocks in taken for block in blocks}
    assert len(numbers) == len(pool.live_blocks()) == 200
    del taken
    assert {block.number for block in [pool.take(256) for _ in range(200)]} == numbers


def test_exact_blocks_are_released_before_others_are_allocated() -> None:
    """A block of an unusual size is reused for that size, and otherwise released."""
    device = Device("numpy")
    pool = Pool(device.backend, "numpy")
    block = pool.take_exactly(1000)
    assert block.nbytes == 1000
    number = block.number
    del block
    block = pool.take_exactly(1000)
    assert block.number == number
    del block
    kept = pool.take(bucket(5000))
    assert pool.reserved == kept.nbytes
