"""Device memory and transfers: allocation, uploads through the queue, and a ring of buffers for reading back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.wgpu import error_mapping
from polyhal.hal.errors import BackendError, OutOfMemoryError, message

if TYPE_CHECKING:
    from polyhal.backends.wgpu.runtime import Runtime

_WORD = 4
_PADDING = 256
_STAGING = 3
_SMALLEST_STAGING = 1 << 16
_LARGEST_STAGING = 1 << 26
"""Larger reads are done in pieces, so that the ring stays small."""


class Block:
    """A buffer of the device. `key` is never used again, unlike an address."""

    __slots__ = ("buffer", "key", "large", "nbytes", "released")

    def __init__(self, buffer: Any, key: int, nbytes: int, large: bool) -> None:
        self.buffer = buffer
        self.key = key
        self.nbytes = nbytes
        self.large = large
        """True when a kernel cannot see the whole of it at once."""
        self.released = False


class Memory:
    """The buffers of one device."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._keys = itertools.count()
        self._ring: list[Any] = [None] * _STAGING
        self._turn = 0
        self.held = 0

    def available(self) -> int:
        """What the device may still hold; wgpu reports no totals, so a GPU's is the largest single buffer."""
        total = self._runtime.info.memory or self._runtime.capabilities.limits.max_allocation
        return max(0, total - self.held)

    def allocate(self, nbytes: int) -> Block:
        """A buffer of at least `nbytes`. Raises OutOfMemoryError."""
        import wgpu

        size = round_up(nbytes, _PADDING)
        limit = self._runtime.capabilities.limits.max_allocation
        if size > limit:
            raise OutOfMemoryError(
                message(
                    None,
                    f"{nbytes / 2**20:.1f} MiB in one piece",
                    expected=f"at most {limit / 2**20:.1f} MiB on this device",
                    fix="split the tensor",
                    device=self._runtime.info.name,
                )
            )
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        try:
            buffer = self._runtime.device.create_buffer(size=size, usage=usage)
        except (wgpu.GPUError, RuntimeError) as error:
            raise error_mapping.translate(error, None, f"allocating {size} bytes", self._runtime.info.name) from error
        self.held += size
        return Block(buffer, next(self._keys), size, size > self._runtime.features.max_binding)

    def deallocate(self, block: Block) -> None:
        """Release a buffer, after submitting the work recorded on it. Raises BackendError if it was released before."""
        if block.released:
            raise BackendError(message(None, "this memory was released before", device=self._runtime.info.name))
        block.released = True
        self._runtime.recorder.flush()
        self.held -= block.nbytes
        block.buffer.destroy()

    def write(self, src: memoryview, block: Block, offset: int) -> None:
        """Copy `src` to the buffer, after what was recorded before."""
        if not src.nbytes:
            return
        data = src.cast("B")
        recorder = self._runtime.recorder
        with recorder.lock:
            # The queue writes at once, so that recorded kernels that still use the memory must be submitted first.
            recorder.flush()
            head = min(-offset % _WORD, data.nbytes)
            tail = (offset + data.nbytes) % _WORD if data.nbytes > head else 0
            middle = data[head : data.nbytes - tail]
            if middle.nbytes:
                self._runtime.device.queue.write_buffer(block.buffer, offset + head, middle)
            if head:
                self._patch(data[:head], block, offset)
            if tail:
                self._patch(data[data.nbytes - tail :], block, offset + data.nbytes - tail)

    def _patch(self, data: memoryview, block: Block, offset: int) -> None:
        """Write less than a word, of which the other bytes stay."""
        word, shift = offset // _WORD, 8 * (offset % _WORD)
        bits = int.from_bytes(data, "little") << shift
        mask = ((1 << 8 * data.nbytes) - 1) << shift
        self._runtime.patch(block, word, mask, bits)

    def read(self, block: Block, offset: int, dst: memoryview) -> None:
        """Fill `dst` from the buffer, after everything recorded before. Blocks."""
        target = dst.cast("B")
        done = 0
        while done < target.nbytes:
            size = min(target.nbytes - done, _LARGEST_STAGING)
            self._read_part(block, offset + done, target[done : done + size])
            done += size

    def _read_part(self, block: Block, offset: int, target: memoryview) -> None:
        import wgpu

        start = offset // _WORD * _WORD
        size = round_up(offset + target.nbytes - start, _WORD)
        recorder = self._runtime.recorder
        with recorder.lock:
            staging = self._staging(size)
            recorder.copy(block.buffer, start, staging, 0, size)
            recorder.flush()
            try:
                staging.map_sync(wgpu.MapMode.READ, 0, size)
                try:
                    view = staging.read_mapped(0, size, copy=False)
                    target[:] = view[offset - start : offset - start + target.nbytes]
                    view.release()
                finally:
                    staging.unmap()
            except (wgpu.GPUError, RuntimeError) as error:
                raise error_mapping.translate(error, None, f"reading {size} bytes", self._runtime.info.name) from error

    def _staging(self, size: int) -> Any:
        """The next buffer of the ring, replaced when it is too small."""
        import wgpu

        self._turn = (self._turn + 1) % _STAGING
        found = self._ring[self._turn]
        if found is None or found.size < size:
            if found is not None:
                found.destroy()
            usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
            room = max(_SMALLEST_STAGING, 1 << (size - 1).bit_length())
            found = self._ring[self._turn] = self._runtime.device.create_buffer(size=room, usage=usage)
        return found
