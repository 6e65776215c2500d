"""Memory of the CUDA backend: copies in the order of streams, staging, pinned memory, releases and shortages."""

from __future__ import annotations

import gc
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation

from polyhal.backends.common.launching import pinned_ring
from polyhal.backends.cuda.backend import CudaBackend
from polyhal.hal import dtypes
from polyhal.hal.errors import BackendError, OutOfMemoryError
from polyhal.hal.layout import Ref, contiguous

_CHUNK = 4096


def write(backend: CudaBackend, array: np.ndarray, handle: Any, offset: int = 0) -> None:
    backend.copy_to_device(memoryview(array.reshape(-1).view(np.uint8)), handle, offset)


def read(backend: CudaBackend, handle: Any, nbytes: int, offset: int = 0) -> np.ndarray:
    out = np.zeros(nbytes, np.uint8)
    backend.copy_from_device(handle, offset, memoryview(out))
    return out


@pytest.mark.parametrize("size", [1, 3, _CHUNK - 1, _CHUNK, _CHUNK + 1, 7 * _CHUNK + 5])
def test_bytes_arrive_although_the_source_changes_right_after_the_call(
    emulation: Emulation, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_ring, "_CHUNK", _CHUNK)
    monkeypatch.setattr("polyhal.backends.cuda.memory._SMALL_READ", 2 * _CHUNK)
    backend = emulation.backend
    data = np.random.default_rng(size).integers(0, 255, size, np.uint8)
    expected, handle = data.copy(), backend.allocate(size + 9)
    write(backend, data, handle, 5)
    data[:] = 0
    np.testing.assert_array_equal(read(backend, handle, size, 5), expected)


def test_several_writes_share_the_staging_memory_in_order(
    emulation: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No write waits for the host, so the ring must not be reused before its copies are done."""
    monkeypatch.setattr(pinned_ring, "_CHUNK", 64)
    backend = emulation.backend
    handles = [backend.allocate(100) for _ in range(9)]
    for i, handle in enumerate(handles):
        write(backend, np.full(100, i, np.uint8), handle)
    for i, handle in enumerate(handles):
        assert set(read(backend, handle, 100)) == {i}


def test_small_writes_wait_for_nothing(emulation: Emulation) -> None:
    """They share a chunk of staging memory, which needs events only when it is full."""
    backend = emulation.backend
    handles = [backend.allocate(100) for _ in range(9)]
    with emulation.library.logged() as calls:
        for i, handle in enumerate(handles):
            write(backend, np.full(100, i, np.uint8), handle)
    assert calls.count("cuMemcpyHtoDAsync_v2") == len(handles)
    assert not any("Event" in name or "Synchronize" in name for name in calls)
    for i, handle in enumerate(handles):
        assert set(read(backend, handle, 100)) == {i}


def test_an_asynchronous_write_reads_its_source_until_its_event(emulation: Emulation) -> None:
    backend = emulation.backend
    handle, source = backend.allocate(64), backend.allocate_pinned(64)
    np.frombuffer(source, np.uint8)[:] = 3
    event = backend.copy_to_device_async(source, handle, 0)
    del source  # the event keeps it
    gc.collect()
    event.wait()
    assert event.is_complete()
    assert set(read(backend, handle, 64)) == {3}


def test_an_asynchronous_read_completes_with_and_without_waiting(emulation: Emulation) -> None:
    backend = emulation.backend
    handle = backend.allocate(5000)
    write(backend, np.full(5000, 9, np.uint8), handle)
    waited, called = np.zeros(5000, np.uint8), np.zeros(4999, np.uint8)
    done: list[Any] = []
    first = backend.copy_from_device_async(handle, 0, memoryview(waited))
    second = backend.copy_from_device_async(handle, 1, memoryview(called))
    second.add_callback(done.append)
    write(backend, np.zeros(5000, np.uint8), handle)  # later in the stream
    first.wait()
    second.wait()
    assert set(waited) == set(called) == {9}
    assert first.is_complete()
    assert done == [None]


def test_pinned_memory_is_released_with_its_last_view(emulation: Emulation) -> None:
    space = emulation.library.machine.memory
    view = emulation.backend.allocate_pinned(1000)
    part = view[10:20]
    (block,) = space.blocks(None)
    del view
    gc.collect()
    assert space.blocks(None) == [block]
    del part
    gc.collect()
    assert space.blocks(None) == []


def test_memory_is_not_released_while_another_stream_uses_it(emulation: Emulation) -> None:
    """The release is enqueued on the device's own stream, the use on a second one that has not started."""
    backend = emulation.backend
    source, target = backend.allocate(400), backend.allocate(400)
    write(backend, np.arange(100, dtype=np.float32), source)
    backend.synchronize()
    spec = contiguous(dtypes.float32, (100,))
    backend.switch_stream(backend.open_stream())
    backend.copy(Ref(source, spec, 0), Ref(target, spec, 0))
    result = np.zeros(100, np.float32)
    event = backend.copy_from_device_async(target, 0, memoryview(result.view(np.uint8)))
    backend.switch_stream(None)
    backend.deallocate(source)
    backend.deallocate(target)
    backend.synchronize()
    event.wait()
    np.testing.assert_array_equal(result, np.arange(100))


def test_releasing_twice_is_an_error_even_if_the_address_is_in_use_again(emulation: Emulation) -> None:
    backend, space = emulation.backend, emulation.library.machine.memory
    first = backend.allocate(64)
    backend.deallocate(first)
    backend.synchronize()
    with pytest.raises(BackendError, match=r"this memory was released before.*Emulated GPU 0"):
        backend.deallocate(first)
    again = backend.allocate(64)
    first.address = again.address  # as drivers reuse addresses
    with pytest.raises(BackendError, match="this memory was released before"):
        backend.deallocate(first)
    backend.deallocate(again)
    backend.synchronize()
    assert space.blocks(emulation.library.devices[0]) == []


def test_shortage_of_memory_is_typed_and_leaves_the_device_usable(emulate: Any) -> None:
    emulation = emulate(capacity=8 << 20)
    backend = emulation.backend
    with pytest.raises(OutOfMemoryError) as caught:
        backend.allocate(9 << 20)
    assert re.search(rf"allocating {9 << 20} bytes failed with CUDA_ERROR_OUT_OF_MEMORY.*batch", str(caught.value))
    handle = backend.allocate(5 << 20)
    assert backend.memory_available() <= 3 << 20
    with pytest.raises(OutOfMemoryError):
        backend.allocate(5 << 20)
    write(backend, np.full(100, 4, np.uint8), handle)
    assert set(read(backend, handle, 100)) == {4}


def test_memory_that_another_stream_still_releases_serves_the_next_allocation(emulate: Any) -> None:
    emulation = emulate(capacity=8 << 20)
    backend = emulation.backend
    first = backend.allocate(6 << 20)
    backend.switch_stream(backend.open_stream())
    backend.deallocate(first)  # nothing has made the second stream start
    backend.switch_stream(None)
    second = backend.allocate(6 << 20)
    write(backend, np.full(100, 4, np.uint8), second)
    assert set(read(backend, second, 100)) == {4}


def test_a_refused_copy_names_the_bytes_and_the_device(emulation: Emulation) -> None:
    backend = emulation.backend
    handle = backend.allocate(64)
    emulation.library.refused["cuMemcpyHtoDAsync_v2"] = 1
    with pytest.raises(
        BackendError, match=r"copying 64 bytes to the device failed with CUDA_ERROR_INVALID_VALUE.*GPU 0"
    ):
        write(backend, np.zeros(64, np.uint8), handle)
    emulation.library.refused.clear()
    write(backend, np.full(64, 2, np.uint8), handle)
    assert set(read(backend, handle, 64)) == {2}


def test_events_and_memory_of_transfers_do_not_accumulate(emulation: Emulation) -> None:
    backend, handles = emulation.backend, emulation.library.machine.handles
    handle = backend.allocate(70000)
    transfer = partial(write, backend, np.zeros(70000, np.uint8), handle)
    for _ in range(4):  # fills the ring
        transfer()
    read(backend, handle, 70000)
    backend.synchronize()
    gc.collect()
    events = len(handles.live("CUevent"))
    for _ in range(20):
        transfer()
        read(backend, handle, 70000)
        backend.mark().wait()
    gc.collect()
    assert len(handles.live("CUevent")) <= events
