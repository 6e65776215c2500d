"""Asynchronous copies to the host: through a staging buffer that is mapped when the device has filled it.

The library polls the device on its own thread while a buffer waits to be mapped. The thread here processes mapped
buffers in the order of the copies: it moves their bytes to the destination and runs callbacks.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.completion import Callback, Completion
from polyhal.backends.common.launching.geometry import round_up
from polyhal.hal.core.memory.staging_pool import StagingPool

if TYPE_CHECKING:
    from polyhal.backends.wgpu.device_runtime import WGPURuntime
    from polyhal.backends.wgpu.memory import Allocation

_WORD = 4


class WGPURead:
    """A copy to the host. Implements `polyhal.hal.protocol.CompletionEvent`."""

    __slots__ = ("_completion", "mapping", "skipped", "staging", "target")

    def __init__(self, staging: Any, mapping: Any, skipped: int, target: memoryview) -> None:
        self.staging = staging
        self.mapping = mapping
        """Promise of the mapped buffer."""
        self.skipped = skipped
        """Bytes in the staging buffer before the requested ones."""
        self.target = target
        self._completion = Completion()

    def wait(self) -> None:
        """Block until the copy is complete. Raises the typed error of work that failed."""
        self._completion.wait()

    def is_complete(self) -> bool:
        """Return whether the copy is complete, without blocking."""
        return self._completion.is_set()

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when the copy is complete; at once if it already is."""
        self._completion.add_callback(callback)

    def finish(self) -> None:
        """Wait for the buffer to be mapped, and copy the bytes. Raises errors of the library."""
        self.mapping.sync_wait()
        size = round_up(self.skipped + self.target.nbytes, _WORD)
        try:
            view = self.staging.read_mapped(0, size, copy=False)
            self.target[:] = view[self.skipped : self.skipped + self.target.nbytes]
            view.release()
        finally:
            self.staging.unmap()

    def complete(self, error: BaseException | None) -> None:
        """Call the callbacks."""
        self._completion.set(error)


class ReadBack:
    """In-flight copies from one device to the host."""

    def __init__(self, runtime: WGPURuntime) -> None:
        self._runtime = runtime
        self._reads: SimpleQueue[WGPURead] = SimpleQueue()
        self._last: WGPURead | None = None
        self._staging: StagingPool[Any] = StagingPool(self._allocate)
        self._started = False
        self._process = os.getpid()
        """Process that owns the delivery thread, which does not survive a fork."""

    def start(self, allocation: Allocation, offset: int, dst: memoryview) -> WGPURead:
        """Start to fill `dst` from a buffer, after previously recorded work, which is submitted."""
        import wgpu

        target = dst.cast("B")
        start = offset // _WORD * _WORD
        size = round_up(offset + target.nbytes - start, _WORD)
        encoder = self._runtime.encoder
        try:
            staging = self._staging.take(size)
            with encoder.lock:
                encoder.copy(allocation.buffer, start, staging, 0, size)
                encoder.flush()
                mapping = _map(staging, size)
                read = WGPURead(staging, mapping, offset - start, target)
                self._ensure_thread()
                self._last = read
                self._reads.put(read)
        except (wgpu.GPUError, RuntimeError) as error:
            raise self._runtime.errors.translate(error, None, f"reading {size} bytes") from error
        return read

    def drain(self) -> None:
        """Wait until all copies have completed or failed."""
        if self._last is not None and os.getpid() == self._process:
            done = threading.Event()
            self._last.add_callback(lambda error: done.set())
            done.wait()

    def _ensure_thread(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._deliver, name="polyhal-wgpu-read-back", daemon=True).start()
            atexit.register(_drain, weakref.ref(self))

    def _deliver(self) -> None:
        """Complete the copies in order. Body of the delivery thread."""
        while True:
            read = self._reads.get()
            try:
                read.finish()
            except Exception as error:
                action = f"reading {read.target.nbytes} bytes"
                read.complete(self._runtime.errors.translate(error, None, action))
            else:
                if not self._staging.give(read.staging, read.staging.size):
                    read.staging.destroy()
                read.complete(None)

    def _allocate(self, size: int) -> Any:
        """Return a new, unmapped staging buffer."""
        import wgpu

        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self._runtime.device.create_buffer(size=size, usage=usage)


def _map(staging: Any, size: int) -> Any:
    """Start to map a buffer whose copy was just submitted.

    The library would submit once more before it maps, and a software renderer runs one submission at a time, so the
    call would wait for the copy. An internal flag avoids it, which later versions may lack.
    """
    import wgpu

    try:
        return staging.map_async("READ_NOSYNC", 0, size)
    except (ValueError, KeyError):
        return staging.map_async(wgpu.MapMode.READ, 0, size)


def _drain(reads: weakref.ref[ReadBack]) -> None:
    """Wait for the copies of a device at exit."""
    if (alive := reads()) is not None:
        alive.drain()
