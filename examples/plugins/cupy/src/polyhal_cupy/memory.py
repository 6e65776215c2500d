"""Device memory and transfers. Handles are device addresses."""

from __future__ import annotations

import threading

import cupy
import numpy as np
from cupy.cuda import runtime as cuda

from polyhal_cupy.stream import Stream, StreamEvent

_ALREADY_ENABLED = 704
"""CUDA's status if another library has already enabled access to the peer."""


class DeviceMemory:
    """Allocation and transfers on one device."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._reached = {stream.number: True}
        """True if this device can access another device's memory, by number."""

    def available(self) -> int:
        """Return the free bytes, considering all processes."""
        with self._stream.entered("reading the free memory"):
            free: int = cuda.memGetInfo()[0]
        return free

    def allocate(self, nbytes: int) -> int:
        """Allocate uninitialized memory. Raises OutOfMemoryError."""
        with self._stream.entered(f"allocating {nbytes} bytes"):
            try:
                handle: int = cuda.malloc(nbytes)
            except cuda.CUDARuntimeError:
                cupy.get_default_memory_pool().free_all_blocks()  # unused temporaries of CuPy's functions
                handle = cuda.malloc(nbytes)
        return handle

    def deallocate(self, handle: int) -> None:
        """Release an allocation. CUDA waits for enqueued work that uses it."""
        with self._stream.entered("releasing memory"):
            cuda.free(handle)

    def write(self, src: memoryview, dst: int) -> None:
        """Copy host bytes to the device. Blocks, so that the caller may change `src`."""
        self.write_async(src, dst).wait()

    def write_async(self, src: memoryview, dst: int) -> StreamEvent:
        """Start to copy host bytes to the device; `src` must stay unchanged until the event is complete."""
        with self._stream.entered(f"copying {src.nbytes} bytes to the device"):
            source = np.frombuffer(src, np.uint8)
            queue = self._stream.stream.ptr
            cuda.memcpyAsync(dst, source.ctypes.data, source.nbytes, cuda.memcpyHostToDevice, queue)
            return StreamEvent(self._stream, source)

    def read(self, src: int, dst: memoryview) -> None:
        """Copy device bytes to the host after all earlier work. Blocks."""
        with self._stream.entered(f"copying {dst.nbytes} bytes from the device"):
            target, stream = np.frombuffer(dst, np.uint8), self._stream.stream
            cuda.memcpyAsync(target.ctypes.data, src, target.nbytes, cuda.memcpyDeviceToHost, stream.ptr)
            stream.synchronize()

    def pinned(self, nbytes: int) -> memoryview:
        """Allocate page-locked host memory, which is freed with the last reference to it."""
        with self._stream.entered(f"allocating {nbytes} bytes of page-locked memory"):
            return np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes).data

    def reaches(self, peer: Stream) -> bool:
        """Return whether the driver can copy from another device without the host, and enable it."""
        with self._lock:
            if peer.number not in self._reached:
                with self._stream.entered(f"reaching the memory of {peer.info.name}"):
                    self._reached[peer.number] = _enable_access(self._stream.number, peer.number)
            return self._reached[peer.number]

    def receive(self, peer: Stream, src: int, dst: int, nbytes: int) -> StreamEvent:
        """Start to copy from another device, ordered between earlier and later work of both streams."""
        own = self._stream
        action = f"copying {nbytes} bytes from {peer.info.name}"
        if peer is not own:
            with peer.entered(action):
                ready = StreamEvent(peer)
        with own.entered(action):
            if peer is not own:
                ready.let_wait(own)
            cuda.memcpyPeerAsync(dst, own.number, src, peer.number, nbytes, own.stream.ptr)
            copied = StreamEvent(own)
            if peer is not own:
                copied.let_wait(peer)
        return copied


def _enable_access(number: int, peer: int) -> bool:
    if not cuda.deviceCanAccessPeer(number, peer):
        return False
    try:
        cuda.deviceEnablePeerAccess(peer)
    except cuda.CUDARuntimeError as error:
        return bool(error.status == _ALREADY_ENABLED)
    return True
