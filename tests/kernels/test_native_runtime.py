"""Memory, transfers, launches from threads, recordings and profiling of native backends."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from polyhal.hal import dtypes
from polyhal.hal.core.execution.runtime_scalars import DerivedScalar
from polyhal.hal.errors import BackendError
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import Feature, features_of


def test_source_may_change_after_an_upload(device: Any) -> None:
    for size in (16, 100_001, 3 * 2**20):
        data = np.arange(size, dtype=np.uint8)
        ref = device.upload(data)
        expected = data.copy()
        data[:] = 0
        np.testing.assert_array_equal(device.download(ref), expected)
        device.backend.deallocate(ref.handle)


def test_transfers_at_any_byte(device: Any) -> None:
    """Graphics APIs move whole words only; large transfers are divided."""
    backend = device.backend
    for offset, size in ((0, 1), (1, 1), (3, 2), (2, 5), (5, 3), (1, 4), (77, 17 * 2**10 + 3), (77, 17 * 2**20 + 3)):
        around = np.full(offset + size + 100, 0xA5, np.uint8)
        handle = backend.allocate(around.size)
        backend.copy_to_device(memoryview(around), handle, 0)
        data = np.random.default_rng(size).integers(0, 255, size, np.uint8)
        backend.copy_to_device(memoryview(data), handle, offset)
        around[offset : offset + size] = data
        back = np.empty_like(around)
        backend.copy_from_device(handle, 0, memoryview(back))
        np.testing.assert_array_equal(back, around)
        part = np.empty(size, np.uint8)
        backend.copy_from_device(handle, offset, memoryview(part))
        np.testing.assert_array_equal(part, data)
        backend.deallocate(handle)


def test_reads_larger_than_any_staging_buffer(device: Any) -> None:
    data = np.random.default_rng(3).integers(0, 255, 65 * 2**20 + 5, np.uint8)
    ref = device.upload(data)
    np.testing.assert_array_equal(device.download(ref), data)
    device.backend.deallocate(ref.handle)


def test_an_upload_waits_for_earlier_readers(device: Any) -> None:
    """Reused memory must keep its old contents for launches before."""
    x, y = device.upload(np.ones(1000, np.float32)), device.empty(dtypes.float32, (1000,))
    device.backend.unary("neg", x, y)
    device.backend.copy_to_device(memoryview(np.zeros(4000, np.uint8)), x.handle, 0)
    assert (device.download(y) == -1).all()


def test_memory_released_while_in_use(device: Any) -> None:
    x, y = device.upload(np.arange(1000, dtype=np.float32)), device.empty(dtypes.float32, (1000,))
    device.backend.unary("neg", x, y)
    device.backend.deallocate(x.handle)
    np.testing.assert_array_equal(device.download(y), -np.arange(1000, dtype=np.float32))


def test_memory_that_is_released_twice_is_an_error(device: Any) -> None:
    handle = device.backend.allocate(4096)
    device.backend.deallocate(handle)
    available = device.backend.memory_available()
    with pytest.raises(BackendError, match="released before"):
        device.backend.deallocate(handle)
    assert device.backend.memory_available() == available


def test_an_input_that_is_the_output(device: Any, rng: np.random.Generator) -> None:
    data = rng.standard_normal(1000).astype(np.float32)
    x = device.upload(data)
    device.backend.binary("mul", x, x, x)
    np.testing.assert_array_equal(device.download(x), data * data)


def test_threads_share_a_launch(device: Any) -> None:
    """A kernel's arguments are state of the OpenCL object: without a lock, threads would overwrite each other's."""
    inputs = [device.upload(np.full(1000, i, np.float32)) for i in range(4)]
    outputs = [device.empty(dtypes.float32, (1000,)) for _ in inputs]
    launch = device.accepted(device.backend.lower("square", (inputs[0].spec,), (outputs[0].spec,), {}))

    def work(i: int) -> None:
        for _ in range(200):
            launch(inputs[i], outputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, out in enumerate(outputs):
        np.testing.assert_array_equal(device.download(out), np.full(1000, i * i))


def test_numbers_are_evaluated_when_a_recording_runs(device: Any) -> None:
    """They need not exist before: an optimizer that is recorded in its first step divides by a correction for step 0."""
    backend, spec = device.backend, contiguous(dtypes.float32, (100,))
    handle, step = backend.allocate(spec.nbytes), [0.0]
    recorded = backend.record([partial(backend.fill, DerivedScalar(lambda: 1 / step[0]), Ref(handle, spec, 0))])
    for step[0] in (4.0, 8.0):
        recorded.submit(())
        assert device.download(Ref(handle, spec, 0)).tolist() == [1 / step[0]] * 100


def test_profiling_times_every_launch(device: Any) -> None:
    if not features_of(device.backend) & Feature.PROFILING:
        pytest.skip("no timestamps on this device")
    x = device.upload(np.ones(1 << 16, np.float32))
    launch = device.accepted(device.backend.lower("negative", (x.spec,), (x.spec,), {}))
    device.backend.start_profiling()
    for _ in range(3):
        launch(x, x)
    found = device.backend.stop_profiling()
    assert [name for name, _, _ in found] == [launch.name] * 3
    assert all(0 < start <= end for _, start, end in found)
    assert [start for _, start, _ in found] == sorted(start for _, start, _ in found)
    launch(x, x)
    np.testing.assert_array_equal(device.download(x), np.ones(1 << 16, np.float32))
