"""Device memory and transfers: allocation, uploads through the queue, and a ring of buffers for reading back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import round_up
from polyhal.hal.errors import BackendError, OutOfMemoryError, message

if TYPE_CHECKING:
    from polyhal.backends.wgpu.device_runtime import WGPURuntime

_WORD = 4
_PADDING = 256
_STAGING_BUFFERS = 3
_MIN_STAGING = 1 << 16
_MAX_STAGING = 1 << 26
"""Maximum bytes of a staging buffer. Larger reads are split, so that the ring stays small."""


class Allocation:
    """A buffer of the device."""

    __slots__ = ("buffer", "exceeds_binding", "key", "nbytes", "released")

    def __init__(self, buffer: Any, key: int, nbytes: int, exceeds_binding: bool) -> None:
        self.buffer = buffer
        self.key = key
        """Unique identity; unlike an address, it is never reused."""
        self.nbytes = nbytes
        self.exceeds_binding = exceeds_binding
        """True if the buffer exceeds the maximum binding size."""
        self.released = False


class WGPUMemory:
    """Allocations and transfers of one device."""

    def __init__(self, runtime: WGPURuntime) -> None:
        self._runtime = runtime
        self._keys = itertools.count()
        self._staging: list[Any] = [None] * _STAGING_BUFFERS
        self._next_staging = 0
        self.allocated = 0

    def available(self) -> int:
        """Return the available bytes. wgpu reports no totals; for a GPU, the size of its largest buffer is used."""
        total = self._runtime.info.memory or self._runtime.capabilities.limits.max_allocation
        return max(0, total - self.allocated)

    def allocate(self, nbytes: int) -> Allocation:
        """Allocate a buffer of at least `nbytes`. Raises OutOfMemoryError."""
        import wgpu

        size = round_up(nbytes, _PADDING)
        limit = self._runtime.capabilities.limits.max_allocation
        if size > limit:
            raise OutOfMemoryError(
                message(
                    None,
                    f"{nbytes / 2**20:.1f} MiB in one buffer",
                    expected=f"at most {limit / 2**20:.1f} MiB on this device",
                    fix="split the tensor",
                    device=self._runtime.info.name,
                )
            )
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        try:
            buffer = self._runtime.device.create_buffer(size=size, usage=usage)
        except (wgpu.GPUError, RuntimeError) as error:
            raise self._runtime.errors.translate(error, None, f"allocating {size} bytes") from error
        self.allocated += size
        return Allocation(buffer, next(self._keys), size, size > self._runtime.features.max_binding)

    def deallocate(self, allocation: Allocation) -> None:
        """Release a buffer, after submitting the work recorded on it. Raises BackendError if it was already released."""
        if allocation.released:
            raise BackendError(message(None, "this memory was released before", device=self._runtime.info.name))
        allocation.released = True
        self._runtime.encoder.flush()
        self.allocated -= allocation.nbytes
        allocation.buffer.destroy()

    def write(self, src: memoryview, allocation: Allocation, offset: int) -> None:
        """Copy `src` to the buffer, after previously recorded work."""
        if not src.nbytes:
            return
        data = src.cast("B")
        encoder = self._runtime.encoder
        with encoder.lock:
            # The queue writes at once, so recorded kernels that still use the memory must be submitted first.
            encoder.flush()
            head = min(-offset % _WORD, data.nbytes)
            tail = (offset + data.nbytes) % _WORD if data.nbytes > head else 0
            middle = data[head : data.nbytes - tail]
            if middle.nbytes:
                self._runtime.device.queue.write_buffer(allocation.buffer, offset + head, middle)
            if head:
                self._patch(data[:head], allocation, offset)
            if tail:
                self._patch(data[data.nbytes - tail :], allocation, offset + data.nbytes - tail)

    def _patch(self, data: memoryview, allocation: Allocation, offset: int) -> None:
        """Write less than a word without changing the other bytes of the word."""
        word, shift = offset // _WORD, 8 * (offset % _WORD)
        bits = int.from_bytes(data, "little") << shift
        mask = ((1 << 8 * data.nbytes) - 1) << shift
        self._runtime.patch(allocation, word, mask, bits)

    def read(self, allocation: Allocation, offset: int, dst: memoryview) -> None:
        """Fill `dst` from the buffer, after previously recorded work. Blocks."""
        target = dst.cast("B")
        done = 0
        while done < target.nbytes:
            size = min(target.nbytes - done, _MAX_STAGING)
            self._read_piece(allocation, offset + done, target[done : done + size])
            done += size

    def _read_piece(self, allocation: Allocation, offset: int, target: memoryview) -> None:
        import wgpu

        start = offset // _WORD * _WORD
        size = round_up(offset + target.nbytes - start, _WORD)
        encoder = self._runtime.encoder
        with encoder.lock:
            staging = self._staging_buffer(size)
            encoder.copy(allocation.buffer, start, staging, 0, size)
            encoder.flush()
            try:
                mapping = self._runtime.map(staging, size, encoder.last_submission)
                mapping.wait()
                mapping.read(offset - start, target)
            except BaseException as error:
                # It may still be mapped, and a submission that writes to a mapped buffer ends the process.
                self._staging[self._next_staging] = None
                staging.destroy()
                if not isinstance(error, (wgpu.GPUError, RuntimeError)):
                    raise
                raise self._runtime.errors.translate(error, None, f"reading {size} bytes") from error

    def _staging_buffer(self, size: int) -> Any:
        """Return the next buffer of the ring, replaced if it is too small."""
        import wgpu

        self._next_staging = (self._next_staging + 1) % _STAGING_BUFFERS
        buffer = self._staging[self._next_staging]
        if buffer is None or buffer.size < size:
            if buffer is not None:
                buffer.destroy()
            usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
            capacity = max(_MIN_STAGING, 1 << (size - 1).bit_length())
            buffer = self._staging[self._next_staging] = self._runtime.device.create_buffer(size=capacity, usage=usage)
        return buffer
