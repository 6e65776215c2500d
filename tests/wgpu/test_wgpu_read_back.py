"""Asynchronous copies to the host: staging buffers are reused, and a failure reaches the callback as a typed error."""

from __future__ import annotations

import threading

import pytest
from native_harness import Harness

from polyhal.backends.wgpu.read_back import WGPURead
from polyhal.hal.errors import BackendError


def test_staging_buffers_are_reused(device: Harness) -> None:
    backend = device.backend
    handle = backend.allocate(10_000)
    reads = backend.runtime.read_back
    for _ in range(8):
        backend.copy_from_device_async(handle, 0, memoryview(bytearray(10_000))).wait()
        reads.drain()
    assert len(reads._staging._free[1 << 14]) == 1
    backend.deallocate(handle)


def test_a_failure_reaches_the_callback(device: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(read: WGPURead) -> None:
        raise RuntimeError("Could not map buffer (2 : device lost).")

    backend = device.backend
    handle = backend.allocate(64)
    monkeypatch.setattr(WGPURead, "finish", fail)
    monkeypatch.setattr(backend.runtime.errors, "lost", "")  # other tests share the device, which is not really lost
    errors: list[BaseException | None] = []
    called = threading.Event()
    event = backend.copy_from_device_async(handle, 0, memoryview(bytearray(64)))
    event.add_callback(lambda error: (errors.append(error), called.set()))
    assert called.wait(60)
    assert isinstance(errors[0], BackendError)
    with pytest.raises(BackendError, match="reading 64 bytes failed with RuntimeError: Could not map"):
        event.wait()
    backend.deallocate(handle)


def test_an_interrupt_in_the_callback_of_the_driver_ends_the_wait(
    device: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = [KeyboardInterrupt()]

    class Interrupted(threading.Event):
        def set(self) -> None:
            if interrupts:
                raise interrupts.pop()
            super().set()

    backend = device.backend
    handle = backend.allocate(64)
    backend.copy_to_device(memoryview(bytes(range(64))), handle, 0)
    monkeypatch.setattr("polyhal.backends.wgpu.mapping.threading.Event", Interrupted)
    got = bytearray(64)
    with pytest.raises(KeyboardInterrupt):
        backend.copy_from_device(handle, 0, memoryview(got))
    monkeypatch.undo()
    backend.copy_from_device(handle, 0, memoryview(got))
    assert got == bytes(range(64))
    backend.deallocate(handle)
