"""Device memory and transfers.

Writes stage the bytes in page-locked memory, so that the caller never waits for earlier kernels and the transfer runs at the
speed of the bus. Reads block.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime as cuda

from polyhal.backends.common.launching.completion import Callback, run_callback
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.hal.errors import PolyhalError
from polyhal_cupy import error_mapping
from polyhal_cupy.runtime import Runtime

_CHUNK = 8 * 2**20
"""Bytes of a staging buffer."""
_CHUNKS = 3
_ALREADY_ENABLED = 704
"""CUDA's status if another library has already enabled access to the peer."""


class StreamEvent:
    """A point in the stream; implements `CompletionEvent`. It keeps `keep` alive until it is complete."""

    __slots__ = ("_event", "_keep", "_runtime")

    def __init__(self, runtime: Runtime, keep: object) -> None:
        self._runtime = runtime
        self._event = cupy.cuda.Event(disable_timing=True)
        self._event.record(runtime.stream)
        self._keep = keep

    def wait(self) -> None:
        """Block until all work before the event is done. Raises the typed error of work that failed."""
        try:
            self._event.synchronize()
        except error_mapping.ERRORS as error:
            raise error_mapping.translate(error, "waiting for a transfer", self._runtime.info.name) from error
        self._keep = None

    def is_complete(self) -> bool:
        """Return whether all work before the event is done."""
        return bool(self._event.done)

    def let_wait(self, runtime: Runtime) -> None:
        """Make later work of a device, possibly another one, wait for the event."""
        runtime.stream.wait_event(self._event)

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when all work before the event is done. Few events have callbacks, so each uses a separate thread."""
        if self.is_complete():
            self._call(callback)
        else:
            threading.Thread(target=self._call, args=(callback,), name="stream event", daemon=True).start()

    def _call(self, callback: Callback) -> None:
        failure: PolyhalError | None = None
        try:
            self.wait()
        except PolyhalError as error:
            failure = error
        run_callback(callback, failure)


class DeviceMemory:
    """Allocation and transfers on one device. Handles are device addresses."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._staging: _StagingRing | None = None
        self._lock = threading.Lock()
        self._reached: dict[int, bool] = {}
        """True if this device can access another device's memory, by number."""

    def available(self) -> int:
        """Return the free bytes, considering all processes."""
        cuda.setDevice(self._runtime.number)
        free: int = cuda.memGetInfo()[0]
        return free

    def allocate(self, nbytes: int) -> int:
        """Allocate uninitialized memory. Raises OutOfMemoryError."""
        try:
            cuda.setDevice(self._runtime.number)
            handle: int = cuda.malloc(nbytes)
        except error_mapping.ERRORS as error:
            raise error_mapping.translate(error, f"allocating {nbytes} bytes", self._runtime.info.name) from error
        return handle

    def deallocate(self, handle: int) -> None:
        """Release an allocation. CUDA waits for enqueued work that uses it."""
        cuda.setDevice(self._runtime.number)
        cuda.free(handle)

    def write(self, src: memoryview, dst: int, offset: int) -> None:
        """Copy host bytes to the device; `src` may be reused on return."""
        self._guarded(
            f"copying {src.nbytes} bytes to the device", lambda: self._ring().write(_bytes(src), dst + offset)
        )

    def read(self, src: int, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host after all earlier work. Blocks."""
        self._guarded(
            f"copying {dst.nbytes} bytes from the device", lambda: self._ring().read(src + offset, _bytes(dst))
        )

    def pinned(self, nbytes: int) -> memoryview:
        """Allocate page-locked host memory, which is freed with the last reference to it."""
        array: np.ndarray = self._guarded(
            f"allocating {nbytes} bytes of page-locked memory", lambda: page_locked(nbytes)
        )
        return array.data

    def write_async(self, src: memoryview, dst: int, offset: int) -> StreamEvent:
        """Copy without waiting; `src` must stay unchanged until the event is complete."""

        def enqueue() -> StreamEvent:
            _to_device(self._runtime, _bytes(src), dst + offset)
            return StreamEvent(self._runtime, src)

        return self._guarded(f"copying {src.nbytes} bytes to the device", enqueue)  # type: ignore[no-any-return]

    def reaches(self, peer: Runtime) -> bool:
        """Return whether the driver can copy from another device without the host, and enable it."""
        if peer.number == self._runtime.number:
            return True
        with self._lock:
            if peer.number not in self._reached:
                self._reached[peer.number] = _enable_access(self._runtime.number, peer.number)
            return self._reached[peer.number]

    def receive(self, peer: Runtime, src: int, dst: int, nbytes: int) -> StreamEvent:
        """Start to copy from another device, ordered between earlier and later work of both streams."""
        own = self._runtime

        def enqueue() -> StreamEvent:
            if peer is not own:
                cuda.setDevice(peer.number)
                ready = StreamEvent(peer, None)
                cuda.setDevice(own.number)
                ready.let_wait(own)
            cuda.memcpyPeerAsync(dst, own.number, src, peer.number, nbytes, own.stream.ptr)
            copied = StreamEvent(own, None)
            if peer is not own:
                copied.let_wait(peer)
            return copied

        return self._guarded(f"copying {nbytes} bytes from {peer.info.name}", enqueue)  # type: ignore[no-any-return]

    def _guarded(self, action: str, work: Any) -> Any:
        try:
            cuda.setDevice(self._runtime.number)
            return work()
        except error_mapping.ERRORS as error:
            raise error_mapping.translate(error, action, self._runtime.info.name) from error

    def _ring(self) -> _StagingRing:
        with self._lock:
            if self._staging is None:
                self._staging = _StagingRing(self._runtime)
            return self._staging


class _StagingRing:
    """A ring of page-locked buffers, so that copies on the host overlap transfers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._chunks = [page_locked(_CHUNK) for _ in range(_CHUNKS)]
        self._events: list[StreamEvent | None] = [None] * _CHUNKS
        self._next = 0
        self._lock = threading.Lock()

    def _next_chunk(self) -> int:
        """Return the index of the next buffer after its last transfer is complete."""
        index = self._next
        self._next = (index + 1) % _CHUNKS
        event, self._events[index] = self._events[index], None
        if event is not None:
            event.wait()
        return index

    def write(self, src: np.ndarray, dst: int) -> None:
        with self._lock:
            for start in range(0, src.nbytes, _CHUNK):
                chunk = src[start : start + _CHUNK]
                index = self._next_chunk()
                staged = self._chunks[index][: chunk.nbytes]
                np.copyto(staged, chunk)
                _to_device(self._runtime, staged, dst + start)
                self._events[index] = StreamEvent(self._runtime, None)

    def read(self, src: int, dst: np.ndarray) -> None:
        with self._lock:
            count = ceil_div(dst.nbytes, _CHUNK)
            pending: deque[tuple[int, int, StreamEvent]] = deque()
            for number in range(count + _CHUNKS - 1):
                if number < count:
                    start = number * _CHUNK
                    index = self._next_chunk()
                    staged = self._chunks[index][: min(_CHUNK, dst.nbytes - start)]
                    _from_device(self._runtime, src + start, staged)
                    pending.append((start, index, StreamEvent(self._runtime, None)))
                if pending and number >= _CHUNKS - 1:
                    start, index, event = pending.popleft()
                    event.wait()
                    stop = min(start + _CHUNK, dst.nbytes)
                    np.copyto(dst[start:stop], self._chunks[index][: stop - start])


def _enable_access(number: int, peer: int) -> bool:
    cuda.setDevice(number)
    if not cuda.deviceCanAccessPeer(number, peer):
        return False
    try:
        cuda.deviceEnablePeerAccess(peer)
    except cuda.CUDARuntimeError as error:
        return bool(error.status == _ALREADY_ENABLED)
    return True


def page_locked(nbytes: int) -> np.ndarray:
    """Allocate page-locked host memory as bytes; it is freed with the array."""
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)


def _to_device(runtime: Runtime, src: np.ndarray, dst: int) -> None:
    cuda.memcpyAsync(dst, src.ctypes.data, src.nbytes, cuda.memcpyHostToDevice, runtime.stream.ptr)


def _from_device(runtime: Runtime, src: int, dst: np.ndarray) -> None:
    cuda.memcpyAsync(dst.ctypes.data, src, dst.nbytes, cuda.memcpyDeviceToHost, runtime.stream.ptr)


def _bytes(view: memoryview) -> np.ndarray:
    """Return a flat byte array over the memory of a view."""
    return np.frombuffer(view, np.uint8)
