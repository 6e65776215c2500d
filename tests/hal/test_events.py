"""Events: points in a device's work; and asynchronous copies to a device."""

from __future__ import annotations

import numpy as np
import pytest
from async_reads import AsyncReadBackend, FailsReads

import polyhal as ph
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError


def _work(device: Device, times: int = 30) -> ph.Tensor:
    x = ph.ones((128, 128), device=device)
    for _ in range(times):
        x = (x @ x) * (1 / 128)
    return x


def test_an_event_comes_after_the_work_before_it(device: Device) -> None:
    future = _work(device).numpy_async()
    event = device.record_event()
    event.synchronize()
    assert event.query()
    assert np.allclose(future.result(60), 1)
    assert repr(event) == f"<event on {device}, done>"


def test_an_event_orders_two_streams(device: Device) -> None:
    s, t = device.stream(), device.stream()
    with s:
        x = _work(device)
    event = s.record_event()
    t.wait_event(event)
    with t:
        y = x + 1
    t.wait_stream(s)
    t.synchronize()
    assert event.query()
    assert np.allclose(y.numpy(), 2)


def test_a_thread_waits_for_an_event_on_its_own_stream(device: Device) -> None:
    s = device.stream()
    with s.selected():
        event = device.record_event()
    event.wait()
    assert np.allclose(_work(device).numpy(), 1)
    device.synchronize()
    assert event.query()


def test_other_devices_wait_on_the_host(device: Device) -> None:
    _work(device)
    event = device.record_event()
    event.wait(Device("numpy:no_f64").stream())
    if device is not Device("numpy:no_f64"):
        assert event.query()


def test_a_device_without_streams_marks_its_work_by_a_read() -> None:
    event = Device.opened("threads", AsyncReadBackend()).record_event()
    event.synchronize()
    assert event.query()
    failed = Device.opened("failing", FailsReads()).record_event()
    with pytest.raises(BackendError, match="the link is down"):
        failed.synchronize()


def test_copies_to_a_device_need_not_wait(device: Device) -> None:
    source = ph.Tensor(np.arange(300_000, dtype=np.float32), device="numpy")
    copies = []
    for k in range(60):  # more than may be in flight
        _work(device, 1)
        copies.append((k, (source + k).to(device, non_blocking=True, copy=True)))
    moved = source.to(device, None, True, True)
    source.zero_()
    expected = np.arange(300_000, dtype=np.float32)
    assert np.array_equal(moved.numpy(), expected)
    for k, copy in copies:
        assert np.array_equal(copy.numpy(), expected + k)


def test_copies_from_a_device_wait_for_the_values(device: Device) -> None:
    x = _work(device).to("numpy", non_blocking=True)
    assert np.allclose(x.numpy(), 1)


def test_gradients_pass_a_copy_that_does_not_wait(device: Device) -> None:
    x = ph.ones((4,), device="numpy", requires_grad=True)
    (x.to(device, non_blocking=True) * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 3, 3]
