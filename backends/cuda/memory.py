"""Device memory and transfers: stream-ordered allocations, and copies through pinned memory.

Writes never block on earlier kernels: the bytes are staged in pinned memory first. Reads block, or report their completion.
Source: CUDA Driver API, sections "Stream Ordered Memory Allocator" and "API synchronization behavior".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from polyhal.backends.common.cuda_driver import OUT_OF_MEMORY, CudaError, ffi
from polyhal.backends.common.launching.pinned_ring import PinnedRing
from polyhal.backends.cuda.events import CudaEvent, CudaRead
from polyhal.backends.cuda.runtime import CudaRuntime
from polyhal.backends.cuda.streams import CudaStream
from polyhal.hal.core.memory.staging_pool import StagingPool
from polyhal.hal.errors import BackendError, message
from polyhal.hal.protocol import TRANSFER, CompletionEvent, Event

_SMALL_READ = 2**16
"""Minimum bytes of a blocking read that goes through pinned memory."""
_PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts of the process."""


class CudaMemory:
    """An allocation: the handle of the contract."""

    __slots__ = ("address", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes


class CudaTransfers:
    """Allocations and transfers of one device."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime
        self._driver = runtime.driver
        self._live: dict[int, CudaMemory] = {}
        """Allocations by address."""
        self._lock = threading.Lock()
        self._ring: PinnedRing | None = None
        self._read_staging: StagingPool[np.ndarray] | None = None

    def available(self) -> int:
        """Return the free bytes of the device, of all processes."""
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        with self._failing("querying the free memory"):
            self._driver.call("cuMemGetInfo_v2", free, total)
        return int(free[0])

    def allocate(self, nbytes: int) -> CudaMemory:
        """Allocate uninitialised memory. Raises OutOfMemoryError."""
        with self._failing(f"allocating {nbytes} bytes"):
            try:
                address = self._allocate(nbytes)
            except CudaError as error:
                if error.status != OUT_OF_MEMORY:
                    raise
                # Memory that was released on another stream, or is still in use, becomes available.
                self._runtime.streams.synchronize()
                address = self._allocate(nbytes)
        memory = CudaMemory(address, nbytes)
        with self._lock:
            self._live[address] = memory
        return memory

    def _allocate(self, nbytes: int) -> int:
        stream = self._runtime.streams.current().handle
        return int(self._driver.value("cuMemAllocAsync", "CUdeviceptr *", nbytes, stream))

    def deallocate(self, memory: CudaMemory) -> None:
        """Release an allocation after all work enqueued so far. Raises BackendError if it was released before."""
        with self._lock:
            if self._live.get(memory.address) is not memory:  # another allocation may have the address by now
                problem = "this memory was released before"
                raise BackendError(message(None, problem, device=self._runtime.info.name))
            del self._live[memory.address]
        with self._failing(f"releasing {memory.nbytes} bytes"):
            self._runtime.streams.release(memory.address)

    def write(self, src: memoryview, dst: CudaMemory, offset: int) -> None:
        """Copy host bytes to the device. The caller may change `src` after the call returns."""
        array = _bytes(src)
        stream = self._runtime.streams.current()

        def copy(staged: np.ndarray, start: int) -> Callable[[], CudaEvent]:
            target = dst.address + offset + start
            self._driver.call("cuMemcpyHtoDAsync_v2", target, _pointer(staged), staged.nbytes, stream.handle)
            return partial(self._mark, stream)

        with self._failing(f"copying {array.nbytes} bytes to the device"):
            self._pinned_ring().write(array, copy, stream)

    def read(self, src: CudaMemory, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host, after all earlier work."""
        array = _bytes(dst)
        stream = self._runtime.streams.current()

        def copy(target: np.ndarray, start: int) -> Callable[[], CudaEvent]:
            source = src.address + offset + start
            self._driver.call("cuMemcpyDtoHAsync_v2", _pointer(target), source, target.nbytes, stream.handle)
            return partial(self._mark, stream)

        with self._failing(f"copying {array.nbytes} bytes to the host"):
            if array.nbytes < _SMALL_READ:
                copy(array, 0)
                stream.synchronize()
            else:
                self._pinned_ring().read(array, copy)

    def write_async(self, src: memoryview, dst: CudaMemory, offset: int) -> Event:
        """Copy without staging. `src` must stay unchanged until the event is complete."""
        array = _bytes(src)
        stream = self._runtime.streams.current()
        with self._failing(f"copying {array.nbytes} bytes to the device"), self._runtime.profiled(TRANSFER, stream):
            self._driver.call(
                "cuMemcpyHtoDAsync_v2", dst.address + offset, _pointer(array), array.nbytes, stream.handle
            )
            return CudaEvent(self._runtime.context, self._runtime.errors, stream.mark(), array)

    def read_async(self, src: CudaMemory, offset: int, dst: memoryview) -> CompletionEvent:
        """Start to copy device bytes to the host, after all earlier work.

        `dst` must stay alive until the event is complete.
        """
        array = _bytes(dst)
        stream = self._runtime.streams.current()
        pool = self._staging_pool()
        # A copy to pageable memory would block.
        staged = pool.take(array.nbytes)

        def finish() -> None:
            np.copyto(array, staged[: array.nbytes])
            pool.give(staged, staged.nbytes)

        with self._failing(f"copying {array.nbytes} bytes to the host"):
            source = src.address + offset
            self._driver.call("cuMemcpyDtoHAsync_v2", _pointer(staged), source, array.nbytes, stream.handle)
            return CudaRead(self._runtime.context, self._runtime.errors, stream.mark(), stream.completer, finish)

    def pinned(self, nbytes: int) -> np.ndarray:
        """Allocate pinned host memory. Releasing the last reference to the array releases it."""
        with self._failing(f"allocating {nbytes} bytes of pinned memory"):
            address = self._driver.value("cuMemHostAlloc", "void **", nbytes, _PORTABLE)
        owner = ffi.gc(address, self._free_pinned, nbytes)
        return np.frombuffer(ffi.buffer(owner, nbytes), np.uint8)

    def _free_pinned(self, address: Any) -> None:
        with self._runtime.context:
            self._driver.lib.cuMemFreeHost(address)

    def _mark(self, stream: CudaStream) -> CudaEvent:
        """Return an event after all commands so far of a stream. The context must be current."""
        return CudaEvent(self._runtime.context, self._runtime.errors, stream.mark())

    def _pinned_ring(self) -> PinnedRing:
        with self._lock:
            if self._ring is None:
                self._ring = PinnedRing(self.pinned)
            return self._ring

    def _staging_pool(self) -> StagingPool[np.ndarray]:
        with self._lock:
            if self._read_staging is None:
                self._read_staging = StagingPool(self.pinned)
            return self._read_staging

    def _failing(self, action: str) -> Any:
        """Return a context in which the device is current and errors of the driver become typed ones."""
        return self._runtime.calling(action)


def _bytes(view: memoryview) -> np.ndarray:
    """Return a flat byte array over the view's memory."""
    return np.frombuffer(view, dtype=np.uint8)


def _pointer(array: np.ndarray) -> Any:
    """Return the address of an array's first element."""
    return ffi.from_buffer(array)
