"""Staging in pinned memory: page-locked host memory, from which a discrete card copies at bus bandwidth."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import pyopencl as cl

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.hal.core.memory.staging_pool import StagingPool

_CHUNK = 8 * 2**20
_CHUNKS = 3


class PinnedRing:
    """A ring of pinned chunks (double buffering): the host copies one while the bus transfers another."""

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._chunks = [mapped_pinned_memory(runtime, _CHUNK) for _ in range(_CHUNKS)]
        self._transfers: list[cl.Event | None] = [None] * _CHUNKS
        self._next = 0
        self._lock = threading.Lock()

    def _acquire(self) -> int:
        """Return the index of the next chunk, after waiting for its last transfer."""
        index = self._next
        self._next = (index + 1) % _CHUNKS
        event = self._transfers[index]
        if event is not None:
            event.wait()
            self._transfers[index] = None
        return index

    def write(self, queue: cl.CommandQueue, src: np.ndarray, dst: cl.Buffer, offset: int) -> None:
        """Copy `src` to the device chunk by chunk. Returns when all of it is in pinned memory or on the device."""
        with self._lock:
            for start in range(0, src.nbytes, _CHUNK):
                piece = src[start : start + _CHUNK]
                index = self._acquire()
                staged = self._chunks[index][: piece.nbytes]
                np.copyto(staged, piece)
                event = cl.enqueue_copy(queue, dst, staged, dst_offset=offset + start, is_blocking=False)
                self._transfers[index] = event
                queue.flush()

    def read(self, queue: cl.CommandQueue, src: cl.Buffer, offset: int, dst: np.ndarray) -> None:
        """Fill `dst` from the device chunk by chunk, with up to `_CHUNKS` transfers in flight."""
        with self._lock:
            count = ceil_div(dst.nbytes, _CHUNK)
            transfers: deque[tuple[int, int, cl.Event]] = deque()
            for number in range(count + _CHUNKS - 1):
                if number < count:
                    start = number * _CHUNK
                    index = self._acquire()
                    staged = self._chunks[index][: min(_CHUNK, dst.nbytes - start)]
                    event = cl.enqueue_copy(queue, staged, src, src_offset=offset + start, is_blocking=False)
                    queue.flush()
                    transfers.append((start, index, event))
                if transfers and (number >= _CHUNKS - 1 or number >= count):
                    start, index, event = transfers.popleft()
                    event.wait()
                    stop = min(start + _CHUNK, dst.nbytes)
                    np.copyto(dst[start:stop], self._chunks[index][: stop - start])


def pinned_pool(runtime: DeviceRuntime) -> StagingPool[np.ndarray]:
    """Return a pool of pinned memory for copies to the host."""
    # Mapping is a command: on the device's queues it would wait for earlier work.
    queue = cl.CommandQueue(runtime.context, runtime.device)
    return StagingPool(lambda size: mapped_pinned_memory(runtime, size, queue))


def mapped_pinned_memory(runtime: DeviceRuntime, nbytes: int, queue: cl.CommandQueue | None = None) -> np.ndarray:
    """Allocate pinned memory and return its bytes. It is unmapped and released with the array."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
    buffer = cl.Buffer(runtime.context, flags, nbytes)
    access: Any = cl.map_flags.READ | cl.map_flags.WRITE
    array: Any
    # The array's base keeps the buffer alive and unmaps it when collected.
    array, _ = cl.enqueue_map_buffer(
        queue or runtime.queue, buffer, access, 0, (nbytes,), np.dtype(np.uint8), is_blocking=True
    )
    return array  # type: ignore[no-any-return]
