"""Device memory and transfers.

Writes never block on earlier kernels: the bytes are staged first, in pinned memory for discrete cards and in ordinary memory
for devices that share the host's. Reads block, or report when they are complete (see events.py).
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque

import numpy as np
import pyopencl as cl

from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.events import OpenCLEvent, OpenCLRead, PendingReads
from polyhal.backends.opencl.host_sharing import HostSharing
from polyhal.backends.opencl.huge_pages import advise_huge_pages, linux_advice
from polyhal.backends.opencl.peers.exported_memory import EXPORTED_FROM, ExportedMemory
from polyhal.backends.opencl.queues import CommandQueue
from polyhal.backends.opencl.staging import PinnedRing, mapped_pinned_memory, pinned_pool
from polyhal.hal.errors import BackendError, OutOfMemoryError, PolyhalError, message
from polyhal.hal.memory.staging_pool import StagingPool
from polyhal.hal.protocol import TRANSFER, CompletionEvent, Event

_SMALL_READ = 2**16
"""Bytes below which a read does not go through pinned memory."""
STAGE_LIMIT = 1 * 2**20
"""Bytes up to which a write to a device with unified memory is staged; above, the extra copy costs more than waiting."""
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
        """Where in the host's memory allocations lie, by their address in the driver, for those that were asked for."""
        self._lock = threading.Lock()
        self._pending: deque[tuple[cl.Event, bytes]] = deque()
        self._ring: PinnedRing | None = None
        self._read_staging: StagingPool[np.ndarray] | None = None
        self._reads: dict[CommandQueue, PendingReads] = {}
        self.exported: ExportedMemory | None = None
        """Where large allocations are made, if others than this device are to reach them."""

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
        exported = self.allocate_exported(nbytes) if self.exported is not None and nbytes >= EXPORTED_FROM else None
        return exported or self._noted(self._plain_buffer(nbytes), nbytes)

    def allocate_exported(self, nbytes: int) -> cl.Buffer | None:
        """Allocate memory that others than this device reach; None if there is none to be had."""
        exported = self.exported.allocate(nbytes) if self.exported is not None else None
        return None if exported is None else self._noted(*exported)

    def import_host(self, address: int, nbytes: int) -> cl.Buffer | None:
        """Return a buffer over memory of the host; None if kernels cannot work there."""
        buffer = self._host.buffer(address, nbytes)
        if buffer is None:
            return None
        with self._lock:
            self._sizes[buffer.int_ptr] = 0  # takes nothing from the device
            self._addresses[buffer.int_ptr] = address
        return buffer

    def host_address(self, handle: cl.Buffer) -> int | None:
        """Return where an allocation lies in the host's memory; None if it does not."""
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
                # Drivers of discrete cards reserve memory at the first use, when a failure could not be retried.
                undefined = cl.mem_migration_flags.CONTENT_UNDEFINED
                cl.enqueue_migrate_mem_objects(self._runtime.queue, [buffer], undefined)
        except cl.Error as error:
            raise self._failed(error, f"allocating {nbytes} bytes") from error
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
            self._addresses.pop(handle.int_ptr, None)
            if self.exported is not None:
                self.exported.forget(handle.int_ptr)

    def write(self, src: memoryview, dst: cl.Buffer, offset: int) -> None:
        """Copy host bytes to the device. The caller may change `src` after the call returns."""
        array = _bytes(src)
        queue = self._runtime.queue
        try:
            if not self._unified:
                self._pinned_ring().write(queue, array, dst, offset)
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
                self._pinned_ring().read(queue, src, offset, array)
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
            self._runtime.profile.append((TRANSFER, event))
        return OpenCLEvent(self._runtime, event, array)

    def read_async(self, src: cl.Buffer, offset: int, dst: memoryview) -> CompletionEvent:
        """Start to copy device bytes to the host, after all earlier work. `dst` must stay alive until the event is complete."""
        array = _bytes(dst)
        queue = self._runtime.queues.current()
        try:
            # A discrete card copies to pageable memory at once, which blocks, or through memory of the driver.
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
        """Allocate pinned host memory. It is released with the last reference to the view."""
        try:
            return memoryview(mapped_pinned_memory(self._runtime, nbytes))  # type: ignore[arg-type]
        except cl.Error as error:
            raise self._failed(error, f"allocating {nbytes} bytes of pinned memory") from error

    def _pinned_ring(self) -> PinnedRing:
        if self._ring is None:
            self._ring = PinnedRing(self._runtime)
        return self._ring

    def _staging_pool(self) -> StagingPool[np.ndarray]:
        with self._lock:
            if self._read_staging is None:
                self._read_staging = pinned_pool(self._runtime)
            return self._read_staging

    def pending_reads(self, queue: CommandQueue) -> PendingReads:
        """Return what delivers the reads of a queue."""
        with self._lock:
            if not self._reads:
                atexit.register(_drain, weakref.ref(self))
            return self._reads.setdefault(queue, PendingReads(self._runtime.errors))

    def drain_reads(self) -> None:
        """Wait until all reads that were started are delivered."""
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
