"""Device memory and transfers.

Writes never make the caller wait for earlier kernels: the bytes are staged first, in page-locked memory on discrete
cards and in ordinary memory on devices that share the host's. Reads wait, as they must.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import pyopencl as cl

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.opencl import error_mapping
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.errors import BackendError, OutOfMemoryError, message
from polyhal.hal.protocol import TRANSFER, Event

_CHUNK = 8 * 2**20
_CHUNKS = 3
_STAGE_LIMIT = 1 * 2**20
"""Bytes up to which a write to a device that shares the host's memory is staged; above, the extra copy costs more."""
_PENDING_LIMIT = 64


class ClEvent:
    """A point in the queue, as the framework's `Event`. `keep` must live until it is complete."""

    __slots__ = ("_keep", "cl")

    def __init__(self, event: cl.Event, keep: object = None) -> None:
        self.cl = event
        self._keep = keep

    def wait(self) -> None:
        self.cl.wait()
        self._keep = None

    def is_complete(self) -> bool:
        return bool(self.cl.command_execution_status <= cl.command_execution_status.COMPLETE)


class Memory:
    """Allocation, transfers and mapping for one device."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._shared = runtime.features.unified_memory
        self._limit = int(runtime.device.max_mem_alloc_size)
        self._total = int(runtime.device.global_mem_size)
        self._used = 0
        self._sizes: dict[int, int] = {}
        """Bytes of each allocation by its address in the driver."""
        self._lock = threading.Lock()
        self._pending: deque[tuple[cl.Event, bytes]] = deque()
        self._staging: _StagingRing | None = None

    def available(self) -> int:
        """Bytes left, as far as this process knows."""
        return max(0, self._total - self._used)

    def allocate(self, nbytes: int) -> cl.Buffer:
        """Uninitialised memory. Raises OutOfMemoryError, also where the driver would only notice at the first use."""
        if nbytes > self._limit or nbytes > self.available():
            raise OutOfMemoryError(
                message(
                    None,
                    f"{nbytes} bytes asked for",
                    expected=f"at most {min(self._limit, self.available())} in one piece",
                    device=self._runtime.info.name,
                )
            )
        try:
            buffer = cl.Buffer(self._runtime.context, cl.mem_flags.READ_WRITE, nbytes)
            if not self._shared:
                # Drivers of discrete cards reserve memory at the first use, where the failure could not be retried.
                undefined = cl.mem_migration_flags.CONTENT_UNDEFINED
                cl.enqueue_migrate_mem_objects(self._runtime.queue, [buffer], undefined)
        except cl.Error as error:
            raise error_mapping.translate(error, f"allocating {nbytes} bytes", self._runtime.info.name) from error
        with self._lock:
            self._used += nbytes
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
                raise BackendError(
                    message(None, "this memory was released before", device=self._runtime.info.name)
                ) from error
            # Asking a released object for its size would crash both CPU drivers.
            self._used -= self._sizes.pop(handle.int_ptr)

    def write(self, src: memoryview, dst: cl.Buffer, offset: int) -> None:
        """Copy host bytes to the device; `src` is free again on return."""
        array = _bytes(src)
        queue = self._runtime.queue
        try:
            if not self._shared:
                self._ring().write(queue, array, dst, offset)
            elif array.nbytes <= _STAGE_LIMIT:
                staged = array.tobytes()
                event = cl.enqueue_copy(queue, dst, staged, dst_offset=offset, is_blocking=False)
                self._retain(event, staged)
            else:
                cl.enqueue_copy(queue, dst, array, dst_offset=offset, is_blocking=True)
        except cl.Error as error:
            raise error_mapping.translate(
                error, f"copying {array.nbytes} bytes to the device", self._runtime.info.name
            ) from error

    def read(self, src: cl.Buffer, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host after all earlier work."""
        array = _bytes(dst)
        queue = self._runtime.queue
        try:
            if self._shared or array.nbytes < 2**16:
                cl.enqueue_copy(queue, array, src, src_offset=offset, is_blocking=True)
            else:
                self._ring().read(queue, src, offset, array)
        except cl.Error as error:
            raise error_mapping.translate(
                error, f"copying {array.nbytes} bytes to the host", self._runtime.info.name
            ) from error

    def write_async(self, src: memoryview, dst: cl.Buffer, offset: int) -> Event:
        """Copy without staging; `src` must stay unchanged until the event is complete."""
        array = _bytes(src)
        queue = self._runtime.queue
        event = cl.enqueue_copy(queue, dst, array, dst_offset=offset, is_blocking=False)
        queue.flush()
        if self._runtime.profile is not None:
            self._runtime.profile.append((TRANSFER, event))
        return ClEvent(event, array)

    def pinned(self, nbytes: int) -> memoryview:
        """Page-locked host memory, given back with the last reference to the view."""
        try:
            return memoryview(_pinned_array(self._runtime, nbytes))  # type: ignore[arg-type]
        except cl.Error as error:
            raise error_mapping.translate(
                error, f"allocating {nbytes} bytes of pinned memory", self._runtime.info.name
            ) from error

    def _ring(self) -> _StagingRing:
        if self._staging is None:
            self._staging = _StagingRing(self._runtime)
        return self._staging

    def _retain(self, event: cl.Event, staged: bytes) -> None:
        """Keep staged bytes until their copy is done."""
        with self._lock:
            self._pending.append((event, staged))
            complete = cl.command_execution_status.COMPLETE
            while self._pending and (
                len(self._pending) > _PENDING_LIMIT or self._pending[0][0].command_execution_status <= complete
            ):
                self._pending.popleft()[0].wait()


class _StagingRing:
    """A few page-locked chunks, so that the host's copying overlaps the bus."""

    def __init__(self, runtime: Runtime) -> None:
        self._chunks = [_pinned_array(runtime, _CHUNK) for _ in range(_CHUNKS)]
        self._events: list[cl.Event | None] = [None] * _CHUNKS
        self._next = 0
        self._lock = threading.Lock()

    def _take(self) -> int:
        """The next chunk, after its last transfer."""
        index = self._next
        self._next = (index + 1) % _CHUNKS
        event = self._events[index]
        if event is not None:
            event.wait()
            self._events[index] = None
        return index

    def write(self, queue: cl.CommandQueue, src: np.ndarray, dst: cl.Buffer, offset: int) -> None:
        with self._lock:
            for start in range(0, src.nbytes, _CHUNK):
                part = src[start : start + _CHUNK]
                index = self._take()
                staged = self._chunks[index][: part.nbytes]
                np.copyto(staged, part)
                self._events[index] = cl.enqueue_copy(queue, dst, staged, dst_offset=offset + start, is_blocking=False)
                queue.flush()

    def read(self, queue: cl.CommandQueue, src: cl.Buffer, offset: int, dst: np.ndarray) -> None:
        with self._lock:
            count = ceil_div(dst.nbytes, _CHUNK)
            enqueued: deque[tuple[int, int, cl.Event]] = deque()
            for piece in range(count + _CHUNKS - 1):
                if piece < count:
                    start = piece * _CHUNK
                    index = self._take()
                    staged = self._chunks[index][: min(_CHUNK, dst.nbytes - start)]
                    event = cl.enqueue_copy(queue, staged, src, src_offset=offset + start, is_blocking=False)
                    queue.flush()
                    enqueued.append((start, index, event))
                if enqueued and (piece >= _CHUNKS - 1 or piece >= count):
                    start, index, event = enqueued.popleft()
                    event.wait()
                    stop = min(start + _CHUNK, dst.nbytes)
                    np.copyto(dst[start:stop], self._chunks[index][: stop - start])


def _pinned_array(runtime: Runtime, nbytes: int) -> np.ndarray:
    """A mapped host allocation. The array's base unmaps it when collected; its owner keeps the buffer alive."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
    buffer = cl.Buffer(runtime.context, flags, nbytes)
    access = cl.map_flags.READ | cl.map_flags.WRITE
    return _mapped(runtime.queue, buffer, access, 0, nbytes)


def _mapped(queue: cl.CommandQueue, buffer: cl.Buffer, flags: Any, offset: int, nbytes: int) -> np.ndarray:
    """Bytes of a buffer in host memory, after all work enqueued before; unmapped when the array is collected."""
    array: Any
    array, _ = cl.enqueue_map_buffer(queue, buffer, flags, offset, (nbytes,), np.dtype(np.uint8), is_blocking=True)
    return array  # type: ignore[no-any-return]


def _bytes(view: memoryview) -> np.ndarray:
    """A flat byte array over the view's memory."""
    return np.frombuffer(view, dtype=np.uint8)
