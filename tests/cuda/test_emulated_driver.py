"""The emulated driver itself: statuses of wrong calls, and work that runs when something waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from emulated_driver import EmulatedLibrary
from emulated_processor import Processor

from polyhal.backends.common.cuda_driver import NULL, CudaDriver, CudaError, ffi

_INVALID_VALUE, _INVALID_DEVICE, _INVALID_CONTEXT, _INVALID_HANDLE, _NOT_READY, _ILLEGAL = 1, 101, 201, 400, 600, 700


@pytest.fixture
def driver(cores: Processor) -> Iterator[CudaDriver]:
    """Two lazy devices; the context of the first is current."""
    made = CudaDriver(EmulatedLibrary(cores, 2, lazy=True))
    contexts = [made.value("cuDevicePrimaryCtxRetain", "CUcontext *", i) for i in range(2)]
    made.call("cuCtxPushCurrent_v2", contexts[0])
    yield made
    made.call("cuCtxPopCurrent_v2", NULL)


def stream(driver: CudaDriver, flags: int = 1) -> Any:
    return driver.value("cuStreamCreate", "CUstream *", flags)


def allocated(driver: CudaDriver, nbytes: int, on: Any = NULL) -> int:
    return int(driver.value("cuMemAllocAsync", "CUdeviceptr *", nbytes, on))


def copied(driver: CudaDriver, address: int, target: np.ndarray, on: Any = NULL) -> None:
    """Enqueue a copy to the host."""
    driver.call("cuMemcpyDtoHAsync_v2", ffi.cast("void *", target.ctypes.data), address, target.nbytes, on)


def status(driver: CudaDriver, name: str, *args: Any) -> int:
    return int(getattr(driver.lib, name)(*args))


def test_calls_without_a_current_context(driver: CudaDriver) -> None:
    address, own, event = allocated(driver, 64), stream(driver), driver.value("cuEventCreate", "CUevent *", 0)
    driver.call("cuCtxPopCurrent_v2", NULL)
    out, nothing = ffi.new("CUdeviceptr *"), ffi.new("char[64]")
    assert status(driver, "cuMemAllocAsync", out, 64, own) == _INVALID_CONTEXT
    assert status(driver, "cuMemFreeAsync", address, own) == _INVALID_CONTEXT
    assert status(driver, "cuMemcpyDtoHAsync_v2", nothing, address, 64, own) == _INVALID_CONTEXT
    assert status(driver, "cuStreamSynchronize", own) == _INVALID_CONTEXT
    assert status(driver, "cuEventRecord", event, own) == _INVALID_CONTEXT
    assert status(driver, "cuEventDestroy_v2", event) == _INVALID_CONTEXT
    assert status(driver, "cuCtxSynchronize") == _INVALID_CONTEXT
    assert status(driver, "cuCtxPopCurrent_v2", NULL) == _INVALID_CONTEXT
    driver.call("cuCtxPushCurrent_v2", driver.value("cuDevicePrimaryCtxRetain", "CUcontext *", 0))


def test_objects_of_another_device(driver: CudaDriver) -> None:
    own, event = stream(driver), driver.value("cuEventCreate", "CUevent *", 0)
    driver.call("cuCtxPushCurrent_v2", driver.value("cuDevicePrimaryCtxRetain", "CUcontext *", 1))
    assert status(driver, "cuStreamSynchronize", own) == _INVALID_HANDLE
    assert status(driver, "cuEventRecord", event, stream(driver)) == _INVALID_HANDLE
    driver.call("cuCtxPopCurrent_v2", NULL)


def test_unknown_objects_and_numbers(driver: CudaDriver) -> None:
    event = driver.value("cuEventCreate", "CUevent *", 0)
    driver.call("cuEventDestroy_v2", event)
    assert status(driver, "cuEventDestroy_v2", event) == _INVALID_HANDLE
    assert status(driver, "cuStreamSynchronize", ffi.cast("CUstream", 77)) == _INVALID_HANDLE
    assert status(driver, "cuDeviceGet", ffi.new("int *"), 2) == _INVALID_DEVICE
    with pytest.raises(CudaError, match="cuDeviceGet failed with CUDA_ERROR_INVALID_DEVICE: invalid device ordinal"):
        driver.value("cuDeviceGet", "CUdevice *", 2)
    with pytest.raises(TypeError):
        driver.call("cuStreamSynchronize", event)  # cffi checks types as it does for the library


def test_memory_that_is_released_twice_or_was_never_allocated(driver: CudaDriver) -> None:
    address = allocated(driver, 100)
    assert status(driver, "cuMemFreeAsync", address + 4, NULL) == _INVALID_VALUE
    driver.call("cuMemFreeAsync", address, NULL)
    assert status(driver, "cuMemFreeAsync", address, NULL) == _INVALID_VALUE
    driver.call("cuCtxSynchronize")
    assert status(driver, "cuMemFreeAsync", address, NULL) == _INVALID_VALUE
    assert status(driver, "cuMemFreeHost", ffi.cast("void *", address)) == _INVALID_VALUE


def test_copies_beyond_an_allocation(driver: CudaDriver) -> None:
    address, out = allocated(driver, 100), ffi.new("char[200]")
    assert status(driver, "cuMemcpyDtoHAsync_v2", out, address, 101, NULL) == _INVALID_VALUE
    assert status(driver, "cuMemcpyDtoHAsync_v2", out, address + 50, 50, NULL) == 0


def test_work_runs_when_something_waits_for_it(driver: CudaDriver) -> None:
    own, out = stream(driver), np.zeros(8, np.uint8)
    address = allocated(driver, 8, own)
    copied(driver, address, out, own)
    event = driver.value("cuEventCreate", "CUevent *", 2)
    driver.call("cuEventRecord", event, own)
    assert not out.any()
    polls = 1
    while status(driver, "cuEventQuery", event) == _NOT_READY:
        polls += 1
    assert polls == 4  # the allocation, the copy, the event, and a last one
    assert (out == 0xFF).all(), "fresh memory is not zero"


def test_a_source_is_read_when_the_copy_runs(driver: CudaDriver) -> None:
    source, out = np.full(4, 1, np.uint8), np.zeros(4, np.uint8)
    address = allocated(driver, 4)
    driver.call("cuMemcpyHtoDAsync_v2", address, ffi.cast("void *", source.ctypes.data), 4, NULL)
    source[:] = 2
    copied(driver, address, out)
    driver.call("cuCtxSynchronize")
    assert (out == 2).all()


def test_a_wait_makes_the_other_stream_run_up_to_the_event(driver: CudaDriver) -> None:
    one, two = stream(driver), stream(driver)
    event = driver.value("cuEventCreate", "CUevent *", 2)
    first, second = np.zeros(4, np.uint8), np.zeros(4, np.uint8)
    address = allocated(driver, 4, one)
    copied(driver, address, first, one)
    driver.call("cuEventRecord", event, one)
    copied(driver, address, second, one)
    driver.call("cuStreamWaitEvent", two, event, 0)
    driver.call("cuStreamSynchronize", two)
    assert first.all()
    assert not second.any()


@pytest.mark.parametrize(("flags", "waits"), [(0, True), (1, False)])
def test_only_blocking_streams_and_the_default_stream_wait_for_each_other(
    driver: CudaDriver, flags: int, waits: bool
) -> None:
    own, first, second = stream(driver, flags), np.zeros(4, np.uint8), np.zeros(4, np.uint8)
    copied(driver, allocated(driver, 4), first)
    copied(driver, allocated(driver, 4, own), second, own)
    driver.call("cuStreamSynchronize", own)
    assert second.all()
    assert first.all() == waits


@pytest.mark.parametrize("peers", [True, False])
def test_memory_of_another_device_needs_permission(cores: Processor, peers: bool) -> None:
    driver = CudaDriver(EmulatedLibrary(cores, 2, peers=peers))
    contexts = [driver.value("cuDevicePrimaryCtxRetain", "CUcontext *", i) for i in range(2)]
    driver.call("cuCtxPushCurrent_v2", contexts[0])
    address = allocated(driver, 4)
    pool = driver.value("cuDeviceGetDefaultMemPool", "CUmemoryPool *", 0)
    access = ffi.new("CUmemAccessDesc *", [[1, 1], 3])
    assert (status(driver, "cuMemPoolSetAccess", pool, access, 1) == 0) == peers
    assert driver.value("cuDeviceCanAccessPeer", "int *", 0, 1) == peers
    driver.call("cuCtxPushCurrent_v2", contexts[1])
    copied(driver, address, np.zeros(4, np.uint8))
    assert status(driver, "cuCtxSynchronize") == (0 if peers else _ILLEGAL)
    assert len(driver.lib.violations) == (not peers)
    for _ in contexts:
        driver.call("cuCtxPopCurrent_v2", NULL)


def test_use_of_memory_before_the_stream_of_its_allocation_gets_there(driver: CudaDriver) -> None:
    one, two = stream(driver), stream(driver)
    copied(driver, allocated(driver, 4, one), np.zeros(4, np.uint8), two)
    assert status(driver, "cuStreamSynchronize", two) == _ILLEGAL
    (text,) = driver.lib.violations
    assert "before the stream of its allocation gets there" in text
    assert status(driver, "cuStreamSynchronize", one) == _ILLEGAL, "the device is lost"


def test_pinned_memory_that_is_released_before_its_copy(driver: CudaDriver) -> None:
    pinned = driver.value("cuMemHostAlloc", "void **", 64, 0)
    driver.call("cuMemcpyHtoDAsync_v2", allocated(driver, 64), pinned, 64, NULL)
    driver.call("cuMemFreeHost", pinned)
    assert status(driver, "cuCtxSynchronize") == _ILLEGAL
    assert "was released before it" in driver.lib.violations[0]


def test_a_pool_keeps_released_memory_until_the_host_waits(driver: CudaDriver) -> None:
    free, total = ffi.new("size_t *"), ffi.new("size_t *")

    def available() -> int:
        driver.call("cuMemGetInfo_v2", free, total)
        return int(free[0])

    before = available()
    address = allocated(driver, 6 << 20)
    assert available() == before - (6 << 20)
    driver.call("cuMemFreeAsync", address, NULL)
    assert available() == before - (6 << 20)
    driver.call("cuStreamSynchronize", NULL)
    assert available() == before
