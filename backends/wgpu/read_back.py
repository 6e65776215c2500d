"""Asynchronous copies to the host: each goes to a staging buffer that is mapped when the device has filled it.

The library polls the device on a thread of its own while a buffer waits to be mapped. The thread here takes the mapped buffers
in the order of the copies, moves their bytes to where they belong, and calls back.
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
from polyhal.hal.memory.staging_pool import StagingPool

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
        """The library's promise of the mapped buffer."""
        self.skipped = skipped
        """Bytes in the staging buffer before those that are wanted."""
        self.target = target
        self._completion = Completion()

    def wait(self) -> None:
        """Block until the bytes are there. Raises the typed error of work that failed."""
        self._completion.wait()

    def is_complete(self) -> bool:
        """Return whether the bytes are there, without blocking."""
        return self._completion.is_set()

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when the bytes are there; at once if they are."""
        self._completion.add_callback(callback)

    def finish(self) -> None:
        """Wait for the buffer to be mapped and take the bytes. Raises errors of the library."""
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
    """The copies to the host of one device that are in flight."""

    def __init__(self, runtime: WGPURuntime) -> None:
        self._runtime = runtime
        self._reads: SimpleQueue[WGPURead] = SimpleQueue()
        self._last: WGPURead | None = None
        self._staging: StagingPool[Any] = StagingPool(self._allocate)
        self._started = False
        self._process = os.getpid()
        """A forked child has no thread that delivers."""

    def start(self, allocation: Allocation, offset: int, dst: memoryview) -> WGPURead:
        """Start to fill `dst` from a buffer, after the work recorded before. Submits that work."""
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
        """Wait until all copies are complete, whether or not they failed."""
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
        """Complete the copies in order. The body of the thread."""
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
        """Return a new staging buffer, which is not mapped."""
        import wgpu

        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self._runtime.device.create_buffer(size=size, usage=usage)


def _map(staging: Any, size: int) -> Any:
    """Start to map a buffer whose copy was just submitted.

    The library would submit once more before it maps, and a software renderer runs one submission at a time: the call would
    wait for the copy. It has a mode without that, which later versions may not have.
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
