"""Asynchronous copies to the host: staging buffers are reused, and a failure reaches the callback as a typed error."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from native_harness import Harness

from polyhal.backends.wgpu.mapping import _NativeMapper, _NativeMapping
from polyhal.backends.wgpu.memory import _STAGING_BUFFERS
from polyhal.backends.wgpu.read_back import WGPURead
from polyhal.hal.errors import BackendError

_MORE_READS = 2 * _STAGING_BUFFERS
"""Reads that use each of the buffers twice."""


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
    for _ in range(_MORE_READS):
        got = bytearray(64)
        backend.copy_from_device(handle, 0, memoryview(got))
        assert got == bytes(range(64))
    backend.deallocate(handle)


@pytest.mark.parametrize("after", ["wait", "copy", "unmap"])
@pytest.mark.parametrize("is_async", [False, True])
def test_reads_after_an_interrupted_one(
    device: Harness, is_async: bool, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between any two steps of a read: the buffer may stay mapped, and must not be written to again."""
    backend = device.backend
    handle = backend.allocate(64)
    backend.copy_to_device(memoryview(bytes(range(64))), handle, 0)
    owner, interrupts = (_NativeMapping if after == "wait" else _NativeMapper), [KeyboardInterrupt()]
    step = getattr(owner, after)

    def interrupted(*args: Any) -> None:
        step(*args)
        if interrupts and threading.current_thread() is threading.main_thread():
            raise interrupts.pop()

    monkeypatch.setattr(owner, after, interrupted)
    monkeypatch.setattr(_NativeMapping, "proceed", lambda mapping: False)  # the thread that delivers would be as fast
    for _ in range(_MORE_READS):
        got = bytearray(64)
        try:
            if is_async:
                event = backend.copy_from_device_async(handle, 0, memoryview(got))
                event.wait()
            else:
                backend.copy_from_device(handle, 0, memoryview(got))
        except KeyboardInterrupt:
            assert not interrupts
            if not is_async:
                continue
            event.wait()
        assert got == bytes(range(64))
    assert not interrupts
    backend.deallocate(handle)
