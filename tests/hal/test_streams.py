"""Streams: equal results with and without them, and no reuse of memory that another stream still uses."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import ShapeError


def _work(x: ph.Tensor, times: int = 6) -> ph.Tensor:
    for _ in range(times):
        x = (x @ x) * 0.1
    return x


@pytest.fixture
def x(device: ph.Device) -> ph.Tensor:
    return ph.Tensor(np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32), device=device)


def test_concurrent_streams(device: ph.Device, x: ph.Tensor) -> None:
    expected = _work(x).numpy()
    s, t = device.stream(), device.stream()
    for _ in range(5):
        y = x * 2.0
        with s:
            a = _work(x)
            del y  # memory freed here must not be reused before the stream has ended
        with t:
            b = _work(x)
        z = x + 1.0
        c = a + b
        assert np.array_equal(c.numpy(), expected + expected)
        assert np.array_equal(z.numpy(), x.numpy() + 1)
        del a, b


def test_consecutive_streams(device: ph.Device, x: ph.Tensor) -> None:
    expected = _work(_work(x)).numpy()
    s, t = device.stream(), device.stream()
    with s:
        a = _work(x)
    t.after(s)
    with t:
        b = _work(a)
    t.synchronize()
    assert np.array_equal(b.numpy(), expected)


def test_blocks_may_be_nested_and_left_by_errors(device: ph.Device, x: ph.Tensor) -> None:
    expected = _work(x).numpy()
    s, t = device.stream(), device.stream()
    with s:
        a = _work(x)
        with t:
            b = _work(x)
        c = a - b
    assert not c.numpy().any()
    with pytest.raises(ShapeError), s:
        x @ ph.zeros((3, 3), device=device)
    assert np.array_equal(_work(x).numpy(), expected)


def test_threads_have_separate_streams(device: ph.Device, x: ph.Tensor) -> None:
    expected = _work(x).numpy()
    found: list[np.ndarray] = []

    def run() -> None:
        for _ in range(3):
            with device.stream():
                y = _work(x)
            found.append(y.numpy())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        found.append(_work(x).numpy())
    for thread in threads:
        thread.join()
    assert len(found) == 9
    assert all(np.array_equal(f, expected) for f in found)


def test_memory_of_streams_is_counted_and_released(device: ph.Device, x: ph.Tensor) -> None:
    device.empty_cache()
    before = device.memory_stats()
    for _ in range(3):
        with device.stream():
            y = _work(x)
        assert device.memory_stats().used > before.used
        del y
    assert device.memory_stats().used == before.used
    device.empty_cache()
    assert device.memory_stats().reserved == before.reserved
    assert len(device.idle_streams) <= 4


def test_peaks_of_streams_are_reset(device: ph.Device, x: ph.Tensor) -> None:
    stream = device.stream()
    with stream:
        y = _work(x)
    stream.synchronize()
    del y
    device.pool.reset_peak()
    stats = device.memory_stats()
    assert stats.peak == stats.used


def test_captured_steps_run_on_streams(device: ph.Device, x: ph.Tensor) -> None:
    step = ph.jit(_work)
    expected = _work(x).numpy()
    stream = device.stream()
    for _ in range(4):
        with stream:
            y = step(x)
        assert np.allclose(y.numpy(), expected, rtol=1e-5)
