"""Reading tensors without waiting: `numpy_async` returns the values that `numpy` would have returned at the time of
the call."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import Future

import numpy as np
import pytest
from async_reads import AsyncReadBackend, FailsReads

import polyhal as ph
from polyhal.hal.core.memory.read_future import ReadFuture
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError, BackendError, CaptureError, TransferError
from polyhal.hal.protocol import Feature

_EXIT = """
import polyhal as ph
device = ph.Device({name!r})
x = ph.ones((256, 256), device=device)
for _ in range(20):
    x = (x @ x) * (1 / 256)
future = x.numpy_async()
future.add_done_callback(lambda f: print("read", f.result().sum(), flush=True))
"""


@pytest.fixture
def x(device: Device) -> ph.Tensor:
    return ph.Tensor(np.random.default_rng(0).standard_normal((48, 32)).astype(np.float32), device=device)


def test_the_array_equals_the_result_of_numpy(device: Device, x: ph.Tensor) -> None:
    views = [x, x.T, x[3:20:4, ::-1], x[7], x.sum(), x[:0], x.bfloat16(), x > 0, x.long()]
    futures = [view.numpy_async() for view in views]
    for view, future in zip(views, futures, strict=True):
        expected, read = view.numpy(), future.result(60)
        assert read.dtype == expected.dtype
        assert read.shape == expected.shape
        assert np.array_equal(read, expected)


def test_complex_tensors_are_read_too(device: Device, x: ph.Tensor) -> None:
    z = ph.complex(x, x * 2)
    assert np.array_equal(z.numpy_async().result(60), z.numpy())


def test_later_changes_do_not_reach_the_array(device: Device, x: ph.Tensor) -> None:
    expected = x.numpy()
    future = x.numpy_async()
    x += 1
    view = x.T.numpy_async()
    x.zero_()
    del x
    others = [ph.ones((48, 32), device=device) * 7 for _ in range(3)]
    assert np.array_equal(future.result(60), expected)
    assert np.array_equal(view.result(60), (expected + 1).T)
    assert all(other.numpy().min() == 7 for other in others)


def test_many_reads_are_in_flight_at_once(device: Device, x: ph.Tensor) -> None:
    futures: list[Future[np.ndarray]] = []
    for _ in range(50):
        x = x + 1
        futures.append(x[0, 0].numpy_async())
    values = [float(future.result(60)) for future in futures]
    np.testing.assert_allclose(np.diff(values), 1.0, rtol=0, atol=2.0**-19)  # half a unit in the last place below 64


def test_callbacks_of_the_future_are_called(x: ph.Tensor) -> None:
    called = threading.Event()
    arrays: list[np.ndarray] = []

    def note(future: Future[np.ndarray]) -> None:
        arrays.append(future.result())
        called.set()

    x.numpy_async().add_done_callback(note)
    assert called.wait(60)
    assert np.array_equal(arrays[0], x.numpy())


def test_a_coroutine_can_await_it(x: ph.Tensor) -> None:
    async def read() -> np.ndarray:
        return await asyncio.wrap_future((x * 2).numpy_async())

    assert np.array_equal(asyncio.run(read()), x.numpy() * 2)


def test_a_read_on_a_stream_follows_its_work(device: Device, x: ph.Tensor) -> None:
    with device.stream():
        y = x
        for _ in range(10):
            y = y + x
        future = y.numpy_async()
        del y
    # Rounding of 2x to 11x, and of the product: 76 roundings of x, at most 2**-24 each.
    np.testing.assert_allclose(future.result(60), x.numpy() * 11, rtol=7 * 2.0**-24, atol=0)


def test_it_cannot_be_cancelled(x: ph.Tensor) -> None:
    future = x.numpy_async()
    assert not future.cancel()
    assert future.result(60).shape == x.shape


def test_devices_without_asynchronous_reads_give_a_finished_future() -> None:
    x = ph.ones((3,), device="numpy")
    assert not x.device.features & Feature.ASYNC_READ
    assert x.numpy_async().done()


def test_a_recorded_value_cannot_be_read(device: Device, x: ph.Tensor) -> None:
    def read(x: ph.Tensor) -> ph.Tensor:
        y = x * 2
        y.numpy_async()
        return y

    step = ph.jit(read, warm_up=False)

    with pytest.raises(CaptureError, match=r"is read while it is only being recorded, at .*test_numpy_async"):
        step(x)


def test_a_whole_batch_cannot_be_read(x: ph.Tensor) -> None:
    with pytest.raises(AutogradError, match="inside vmap"):
        ph.func.vmap(lambda row: row * float(row.numpy_async().result()[0]))(x)


def test_failed_work_raises_its_typed_error() -> None:
    x = ph.ones((3,), device=Device.opened("failing", FailsReads()))
    future = x.numpy_async()
    assert not future.done()
    with pytest.raises(BackendError, match="the link is down"):
        future.result()
    assert future.exception() is FailsReads.error
    z = ph.complex(x, x).numpy_async()
    with pytest.raises(BackendError, match="the link is down"):
        z.result()


def test_the_wait_may_time_out() -> None:
    x = ph.ones((3,), device=Device.opened("failing", FailsReads()))
    with pytest.raises(TimeoutError):
        x.numpy_async().result(timeout=0.001)


def test_any_backend_may_support_it() -> None:
    device = Device.opened("threads", AsyncReadBackend())
    assert device.features & Feature.ASYNC_READ
    x = ph.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    assert x.T.numpy_async().result(60).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_the_program_may_end_before_the_read(device: Device) -> None:
    script = _EXIT.format(name=device.name)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "read 65536.0\n"
    assert not done.stderr


def test_an_error_that_only_the_waiting_thread_is_told_is_not_lost() -> None:
    class Failed:
        def wait(self) -> None:
            future.set_result("damaged")
            raise TransferError("told once")

        def is_complete(self) -> bool:
            return True

    future = ReadFuture(Failed())
    with pytest.raises(TransferError, match="told once"):
        future.result()
