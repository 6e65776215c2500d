"""Device memory and transfers.

Writes never block on earlier kernels: the bytes are staged first, in pinned memory for discrete cards and in ordinary memory
for devices that share the host's. Reads block, as they must.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import pyopencl as cl

from polyhal.backends.opencl import error_mapping
from polyhal.backends.opencl.runtime import Runtime
from polyhal.backends.opencl.staging import PinnedRing, mapped_pinned_memory
from polyhal.hal.errors import BackendError, OutOfMemoryError, PolyhalError, message
from polyhal.hal.protocol import TRANSFER, Event

_SMALL_READ = 2**16
"""Bytes below which a read does not go through pinned memory."""
_STAGE_LIMIT = 1 * 2**20
"""Bytes up to which a write to a device with unified memory is staged; above, the extra copy costs more than waiting."""
_MAX_PENDING = 64


class OpenCLEvent:
    """A point in a queue. Implements `polyhal.hal.protocol.Event`."""

    __slots__ = ("_keep_alive", "cl")

    def __init__(self, event: cl.Event, keep_alive: object = None) -> None:
        """`keep_alive` is referenced until the event is complete."""
        self.cl = event
        self._keep_alive = keep_alive

    def wait(self) -> None:
        """Block until the event is complete."""
        self.cl.wait()
        self._keep_alive = None

    def is_complete(self) -> bool:
        """Return whether the event is complete, without blocking."""
        return bool(self.cl.command_execution_status <= cl.command_execution_status.COMPLETE)


class OpenCLMemory:
    """Allocations and transfers of one device."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._unified = runtime.features.unified_memory
        self._max_allocation = int(runtime.device.max_mem_alloc_size)
        self._total = int(runtime.device.global_mem_size)
        self._allocated = 0
        self._sizes: dict[int, int] = {}
        """Bytes of each allocation by its address in the driver."""
        self._lock = threading.Lock()
        self._pending: deque[tuple[cl.Event, bytes]] = deque()
        self._ring: PinnedRing | None = None

    def available(self) -> int:
        """Return the bytes that are left, considering the allocations of this process only."""
        return max(0, self._total - self._allocated)

    def allocate(self, nbytes: int) -> cl.Buffer:
        """Allocate uninitialised memory. Raises OutOfMemoryError, even if the driver would only notice at the first use."""
        largest = min(self._max_allocation, self.available())
        if nbytes > largest:
            expected = f"at most {largest} in one piece"
            raise OutOfMemoryError(
                message(None, f"{nbytes} bytes asked for", expected=expected, device=self._runtime.info.name)
            )
        try:
            buffer = cl.Buffer(self._runtime.context, cl.mem_flags.READ_WRITE, nbytes)
            if not self._unified:
                # Drivers of discrete cards reserve memory at the first use, when a failure could not be retried.
                undefined = cl.mem_migration_flags.CONTENT_UNDEFINED
                cl.enqueue_migrate_mem_objects(self._runtime.queue, [buffer], undefined)
        except cl.Error as error:
            raise self._failed(error, f"allocating {nbytes} bytes") from error
        with self._lock:
            self._allocated += nbytes
            self._sizes[buffer.int_ptr] = nbytes
        return buffer

    def deallocate(self, handle: cl.Buffer) -> None:
        """Release an allocation. OpenCL keeps the memory alive for commands that were enqueued before.

        Raises BackendError if the handle was released before.
        """
        # Under the lock, because the driver may give the address to another thread's allocation at once.
        with self._lock:
            try:
                handle.release()
            except cl.LogicError as error:
                problem = "this memory was released before"
                raise BackendError(message(None, problem, device=self._runtime.info.name)) from error
            # Asking a released object for its size would crash both CPU drivers.
            self._allocated -= self._sizes.pop(handle.int_ptr)

    def write(self, src: memoryview, dst: cl.Buffer, offset: int) -> None:
        """Copy host bytes to the device. The caller may change `src` after the call returns."""
        array = _bytes(src)
        queue = self._runtime.queue
        try:
            if not self._unified:
                self._pinned_ring().write(queue, array, dst, offset)
            elif array.nbytes <= _STAGE_LIMIT:
                staged = array.tobytes()
                event = cl.enqueue_copy(queue, dst, staged, dst_offset=offset, is_blocking=False)
                self._keep_until_done(event, staged)
            else:
                cl.enqueue_copy(queue, dst, array, dst_offset=offset, is_blocking=True)
        except cl.Error as error:
            raise self._failed(error, f"copying {array.nbytes} bytes to the device") from error

    def read(self, src: cl.Buffer, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host, after all earlier work."""
        array = _bytes(dst)
        queue = self._runtime.queue
        try:
            if self._unified or array.nbytes < _SMALL_READ:
                cl.enqueue_copy(queue, array, src, src_offset=offset, is_blocking=True)
            else:
                self._pinned_ring().read(queue, src, offset, array)
        except cl.Error as error:
            raise self._failed(error, f"copying {array.nbytes} bytes to the host") from error

    def write_async(self, src: memoryview, dst: cl.Buffer, offset: int) -> Event:
        """Copy without staging. `src` must stay unchanged until the event is complete."""
        array = _bytes(src)
        queue = self._runtime.queue
        event = cl.enqueue_copy(queue, dst, array, dst_offset=offset, is_blocking=False)
        queue.flush()
        if self._runtime.profile is not None:
            self._runtime.profile.append((TRANSFER, event))
        return OpenCLEvent(event, array)

    def pinned(self, nbytes: int) -> memoryview:
        """Allocate pinned host memory. It is released with the last reference to the view."""
        try:
            return memoryview(mapped_pinned_memory(self._runtime, nbytes))  # type: ignore[arg-type]
        except cl.Error as error:
            raise self._failed(error, f"allocating {nbytes} bytes of pinned memory") from error

    def _pinned_ring(self) -> PinnedRing:
        if self._ring is None:
            self._ring = PinnedRing(self._runtime)
        return self._ring

    def _keep_until_done(self, event: cl.Event, staged: bytes) -> None:
        """Keep staged bytes alive until their copy is done."""
        with self._lock:
            self._pending.append((event, staged))
            complete = cl.command_execution_status.COMPLETE
            while self._pending and (
                len(self._pending) > _MAX_PENDING or self._pending[0][0].command_execution_status <= complete
            ):
                self._pending.popleft()[0].wait()

    def _failed(self, error: cl.Error, action: str) -> PolyhalError:
        return error_mapping.translate(error, action, self._runtime.info.name)


def _bytes(view: memoryview) -> np.ndarray:
    """Return a flat byte array over the view's memory."""
    return np.frombuffer(view, dtype=np.uint8)
