"""Asynchronous copies to the host: through a staging buffer that is mapped when the device has filled it.

Copies complete in their order: their bytes are moved to the destination, and callbacks run. A thread that waits for a copy
does that itself; otherwise the thread here does it, which looks at the device again and again.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.completion import Callback, Completion
from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.wgpu.mapping import HostMapping
from polyhal.hal.core.memory.staging_pool import StagingPool

if TYPE_CHECKING:
    from polyhal.backends.wgpu.device_runtime import WGPURuntime
    from polyhal.backends.wgpu.memory import Allocation

_WORD = 4
_PAUSE = 2e-4
"""Seconds between two looks at the device while no thread waits for a copy."""


class WGPURead:
    """A copy to the host. Implements `polyhal.hal.protocol.CompletionEvent`."""

    __slots__ = ("_completion", "_reads", "is_begun", "mapping", "skipped", "staging", "target")

    def __init__(self, reads: ReadBack, staging: Any, mapping: HostMapping, skipped: int, target: memoryview) -> None:
        self._reads = reads
        self.staging = staging
        self.mapping = mapping
        self.skipped = skipped
        """Bytes in the staging buffer before the requested ones."""
        self.target = target
        self.is_begun = False
        """True if a thread has begun to finish it, which an interrupt may have ended."""
        self._completion = Completion()

    def wait(self) -> None:
        """Block until the copy is complete. Raises the typed error of work that failed."""
        if not self._completion.is_set():
            self._reads.complete_until(self)
        self._completion.wait()

    def is_complete(self) -> bool:
        """Return whether the copy is complete, without blocking."""
        return self._completion.is_set()

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when the copy is complete; at once if it already is."""
        self._completion.add_callback(callback)

    def finish(self) -> None:
        """Wait for the buffer to be mapped, and copy the bytes. Raises errors of the library."""
        self.mapping.wait()
        self.mapping.read(self.skipped, self.target)

    def complete(self, error: BaseException | None) -> None:
        """Call the callbacks."""
        self._completion.set(error)


class ReadBack:
    """In-flight copies from one device to the host."""

    def __init__(self, runtime: WGPURuntime) -> None:
        self._runtime = runtime
        self._reads: deque[WGPURead] = deque()
        """Copies that are not complete, in their order."""
        self._completing = threading.RLock()
        self._wake = threading.Event()
        """Set when there are copies; the thread here clears it when there are none."""
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
                mapping = self._runtime.map(staging, size, encoder.last_submission)
                read = WGPURead(self, staging, mapping, offset - start, target)
                self._ensure_thread()
                self._reads.append(read)
                self._wake.set()
        except (wgpu.GPUError, RuntimeError) as error:
            raise self._runtime.errors.translate(error, None, f"reading {size} bytes") from error
        return read

    def drain(self) -> None:
        """Wait until all copies have completed or failed."""
        if os.getpid() == self._process:
            with suppress(IndexError):  # another thread completed the last one meanwhile
                while True:
                    self.complete_until(self._reads[-1])

    def complete_until(self, last: WGPURead) -> None:
        """Complete copies in their order up to `last`."""
        with suppress(Exception):  # the error is found again when the copy is finished
            last.mapping.wait()
        with self._completing:
            while self._reads and not last.is_complete():
                self._complete(self._reads[0])

    def _complete(self, read: WGPURead) -> None:
        """Wait for the first of the copies, and run its callbacks."""
        was_interrupted, read.is_begun = read.is_begun, True
        try:
            read.finish()
        except Exception as error:
            failed: BaseException | None = self._runtime.errors.translate(
                error, None, f"reading {read.target.nbytes} bytes"
            )
        else:
            failed = None
            # After an interrupt it may still be mapped.
            if was_interrupted or not self._staging.give(read.staging, read.staging.size):
                read.staging.destroy()
        self._reads.popleft()
        read.complete(failed)

    def _ensure_thread(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._deliver, name="polyhal-wgpu-read-back", daemon=True).start()
            atexit.register(_drain, weakref.ref(self))

    def _deliver(self) -> None:
        """Complete copies that no thread waits for. Body of the delivery thread."""
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._reads:
                time.sleep(_PAUSE)
                with suppress(IndexError):  # another thread completed it meanwhile
                    read = self._reads[0]
                    if read.mapping.proceed():
                        self.complete_until(read)

    def _allocate(self, size: int) -> Any:
        """Return a new, unmapped staging buffer."""
        import wgpu

        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self._runtime.device.create_buffer(size=size, usage=usage)


def _drain(reads: weakref.ref[ReadBack]) -> None:
    """Wait for the copies of a device at exit."""
    if (alive := reads()) is not None:
        alive.drain()
