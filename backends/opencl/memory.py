"""Device memory and transfers.

Writes never block on earlier kernels: the bytes are staged first, in pinned memory for discrete cards and in pageable
memory for devices with unified memory. Reads block, or report their completion (see events.py).
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import pyopencl as cl

from polyhal.backends.common.launching.pinned_ring import PinnedRing
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.events import OpenCLEvent, OpenCLRead, PendingReads
from polyhal.backends.opencl.host_sharing import HostSharing
from polyhal.backends.opencl.huge_pages import advise_huge_pages, linux_advice
from polyhal.backends.opencl.peers.exported_memory import EXPORTED_FROM, ExportedMemory
from polyhal.backends.opencl.profile import TimedEnqueue
from polyhal.backends.opencl.queues import CommandQueue
from polyhal.backends.opencl.staging import mapped_pinned_memory, pinned_pool
from polyhal.hal.core.memory.staging_pool import StagingPool
from polyhal.hal.errors import BackendError, OutOfMemoryError, PolyhalError, message
from polyhal.hal.protocol import TRANSFER, CompletionEvent, Event

_SMALL_READ = 2**16
"""Minimum bytes of a read that goes through pinned memory."""
STAGE_LIMIT = 1 * 2**20
"""Maximum bytes of a staged write to a device with unified memory; above, the extra copy costs more than waiting."""
_MAX_PENDING = 64


class OpenCLMemory:
    """Allocations and transfers of one device."""

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._unified = runtime.features.unified_memory
        self._max_allocation = int(runtime.device.max_mem_alloc_size)
        self._total = runtime.info.memory
        self._allocated = 0
        self._sizes: dict[int, int] = {}
        """Bytes of each allocation by its address in the driver."""
        self._host = HostSharing(runtime)
        self._addresses: dict[int, int] = {}
        """Host addresses of allocations, as far as requested, by address in the driver."""
        self._lock = threading.Lock()
        self._pending: deque[tuple[cl.Event, bytes]] = deque()
        self._ring: PinnedRing | None = None
        self._read_staging: StagingPool[np.ndarray] | None = None
        self._reads: dict[CommandQueue, PendingReads] = {}
        self.exported: ExportedMemory | None = None
        """Allocator of large allocations if other devices or libraries access them."""

    def available(self) -> int:
        """Return the free bytes, counting only allocations of this process."""
        return max(0, self._total - self._allocated)

    def allocate(self, nbytes: int) -> cl.Buffer:
        """Allocate uninitialised memory. Raises OutOfMemoryError, even if the driver would only fail at the first use."""
        largest = min(self._max_allocation, self.available())
        if nbytes > largest:
            expected = f"at most {largest} in one piece"
            raise OutOfMemoryError(
                message(None, f"{nbytes} bytes requested", expected=expected, device=self._runtime.info.name)
            )
        exported = self.allocate_exported(nbytes) if self.exported is not None and nbytes >= EXPORTED_FROM else None
        return exported or self._noted(self._plain_buffer(nbytes), nbytes)

    def allocate_exported(self, nbytes: int) -> cl.Buffer | None:
        """Allocate memory that other devices and libraries can access; None if that is not possible."""
        exported = self.exported.allocate(nbytes) if self.exported is not None else None
        return None if exported is None else self._noted(*exported)

    def import_host(self, address: int, nbytes: int) -> cl.Buffer | None:
        """Return a buffer over memory of the host; None if kernels cannot use it in place."""
        buffer = self._host.buffer(address, nbytes)
        if buffer is None:
            return None
        with self._lock:
            self._sizes[buffer.int_ptr] = 0  # takes nothing from the device
            self._addresses[buffer.int_ptr] = address
        return buffer

    def host_address(self, handle: cl.Buffer) -> int | None:
        """Return the host address of an allocation; None if it is not in host memory."""
        key = handle.int_ptr
        known = self._addresses.get(key)
        if known is None:
            known = self._host.address(handle, self._sizes[key])
            if known is not None:
                self._addresses[key] = known
        return known

    def _noted(self, buffer: cl.Buffer, size: int) -> cl.Buffer:
        with self._lock:
            self._allocated += size
            self._sizes[buffer.int_ptr] = size
        return buffer

    def _plain_buffer(self, nbytes: int) -> cl.Buffer:
        try:
            buffer = cl.Buffer(self._runtime.context, cl.mem_flags.READ_WRITE, nbytes)
            if self._runtime.features.cpu:
                advise_huge_pages(self._runtime.queue, buffer, nbytes, linux_advice())
            if not self._unified:
                # Drivers of discrete cards reserve memory at the first use, too late to retry after a failure.
                undefined = cl.mem_migration_flags.CONTENT_UNDEFINED
                cl.enqueue_migrate_mem_objects(self._runtime.queue, [buffer], undefined)
        except cl.Error as error:
            raise self._failed(error, f"allocating {nbytes} bytes") from error
        return buffer

    def deallocate(self, handle: cl.Buffer) -> None:
        """Release an allocation. OpenCL keeps the memory alive for commands that were enqueued before.

        Raises BackendError if the handle was released before.
        """
        # Under the lock, because the driver may immediately reuse the address for another thread's allocation.
        with self._lock:
            try:
                handle.release()
            except cl.LogicError as error:
                problem = "this memory was released before"
                raise BackendError(message(None, problem, device=self._runtime.info.name)) from error
            # Querying the size of a released object would crash both CPU drivers.
            self._allocated -= self._sizes.pop(handle.int_ptr)
            self._addresses.pop(handle.int_ptr, None)
            if self.exported is not None:
                self.exported.forget(handle.int_ptr)

    def write(self, src: memoryview, dst: cl.Buffer, offset: int) -> None:
        """Copy host bytes to the device. The caller may change `src` after the call returns."""
        array = _bytes(src)
        queue = self._runtime.queue
        try:
            if not self._unified:

                def write(staged: np.ndarray, start: int) -> Callable[[], cl.Event]:
                    event = cl.enqueue_copy(queue, dst, staged, dst_offset=offset + start, is_blocking=False)
                    queue.flush()
                    return lambda: event

                self._pinned_ring().write(array, write, queue)
            elif array.nbytes <= STAGE_LIMIT:
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

                def read(staged: np.ndarray, start: int) -> Callable[[], cl.Event]:
                    event = cl.enqueue_copy(queue, staged, src, src_offset=offset + start, is_blocking=False)
                    queue.flush()
                    return lambda: event

                self._pinned_ring().read(array, read)
        except cl.Error as error:
            raise self._failed(error, f"copying {array.nbytes} bytes to the host") from error

    def write_async(self, src: memoryview, dst: cl.Buffer, offset: int) -> Event:
        """Copy without staging. `src` must stay unchanged until the event is complete."""
        array = _bytes(src)
        queue = self._runtime.queue
        try:
            event = cl.enqueue_copy(queue, dst, array, dst_offset=offset, is_blocking=False)
            queue.flush()
        except cl.Error as error:
            raise self._failed(error, f"copying {array.nbytes} bytes to the device") from error
        if self._runtime.profile is not None:
            self._runtime.profile.append(TimedEnqueue(TRANSFER, event, threading.get_ident()))
        return OpenCLEvent(self._runtime, event, array)

    def read_async(self, src: cl.Buffer, offset: int, dst: memoryview) -> CompletionEvent:
        """Start to copy device bytes to the host, after all earlier work.

        `dst` must stay alive until the event is complete.
        """
        array = _bytes(dst)
        queue = self._runtime.queues.current()
        try:
            # A discrete card copies to pageable memory either synchronously, which blocks, or through the driver's
            # staging memory.
            staged = None if self._unified else self._staging_pool().take(array.nbytes)
            target = array if staged is None else staged[: array.nbytes]
            event = cl.enqueue_copy(queue.native, target, src, src_offset=offset, is_blocking=False)
            queue.native.flush()
        except cl.Error as error:
            raise self._failed(error, f"copying {array.nbytes} bytes to the host") from error

        def finish() -> None:
            if staged is not None:
                np.copyto(array, staged[: array.nbytes])
                self._staging_pool().give(staged, staged.nbytes)

        read = OpenCLRead(self._runtime, event, finish)
        self.pending_reads(queue).add(read)
        return read

    def pinned(self, nbytes: int) -> memoryview:
        """Allocate pinned host memory. Releasing the last reference to the view releases it."""
        try:
            return memoryview(mapped_pinned_memory(self._runtime, nbytes))  # type: ignore[arg-type]
        except cl.Error as error:
            raise self._failed(error, f"allocating {nbytes} bytes of pinned memory") from error

    def _pinned_ring(self) -> PinnedRing:
        if self._ring is None:
            self._ring = PinnedRing(partial(mapped_pinned_memory, self._runtime))
        return self._ring

    def _staging_pool(self) -> StagingPool[np.ndarray]:
        with self._lock:
            if self._read_staging is None:
                self._read_staging = pinned_pool(self._runtime)
            return self._read_staging

    def pending_reads(self, queue: CommandQueue) -> PendingReads:
        """Return the PendingReads of a queue."""
        with self._lock:
            if not self._reads:
                atexit.register(_drain, weakref.ref(self))
            return self._reads.setdefault(queue, PendingReads(self._runtime.errors))

    def drain_reads(self) -> None:
        """Wait until all pending reads are delivered."""
        for reads in list(self._reads.values()):
            reads.drain()

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
        return self._runtime.errors.translate(error, action)


def _bytes(view: memoryview) -> np.ndarray:
    """Return a flat byte array over the view's memory."""
    return np.frombuffer(view, dtype=np.uint8)


def _drain(memory: weakref.ref[OpenCLMemory]) -> None:
    """Wait for the reads of a device at exit."""
    if (alive := memory()) is not None:
        alive.drain_reads()
