"""A mirror of the device's memory in real OpenCL buffers: the same command stream, carried out twice.

Each allocation gets a buffer when it is first written. Transfers become writes, copies and reads of the real driver; kernels
compute on the host, and what they have written is sent after them. What is read back is compared byte by byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.backends.sim.address_space import DeviceAllocation
from polyhal.hal.discovery.registry import registry
from polyhal.hal.errors import BackendError, message


class OpenCLMirror:
    """The buffers of one device. Called by its command processor alone."""

    def __init__(self) -> None:
        """Open the first OpenCL device. Raises ValueError if there is none."""
        registry().probe("opencl")  # registers drivers that come as packages, which must happen before any are listed
        import pyopencl as cl

        try:
            devices = [d for platform in cl.get_platforms() for d in platform.get_devices()]
        except cl.Error as error:
            raise ValueError(f"mirror=opencl needs an OpenCL driver: {error}") from error
        if not devices:
            raise ValueError("mirror=opencl needs an OpenCL device, and there is none")
        self.name = devices[0].name.strip()
        self.transfers = 0
        """Commands that the real driver has carried out."""
        self._cl = cl
        self._context = cl.Context(devices[:1])
        self._queue = cl.CommandQueue(self._context)
        self._buffers: dict[DeviceAllocation, Any] = {}

    def forget(self, allocation: DeviceAllocation) -> None:
        """Release the buffer of an allocation that was freed."""
        self._buffers.pop(allocation, None)

    def write(self, allocation: DeviceAllocation, offset: int, nbytes: int) -> None:
        """Send bytes that a transfer or a kernel has written."""
        if allocation.storage is not None:
            self._copy(self._buffer(allocation), allocation.storage[offset : offset + nbytes], dst_offset=offset)

    def copy(
        self, source: DeviceAllocation, source_offset: int, target: DeviceAllocation, offset: int, nbytes: int
    ) -> None:
        """Copy bytes from one buffer to another."""
        self._copy(
            self._buffer(target), self._buffer(source), src_offset=source_offset, dst_offset=offset, byte_count=nbytes
        )

    def difference(self, allocation: DeviceAllocation, offset: int, nbytes: int) -> BackendError | None:
        """Read bytes back, and return an error if they are not those of the simulated memory."""
        if allocation.storage is None:
            return None
        real = np.empty(nbytes, np.uint8)
        self._copy(real, self._buffer(allocation), src_offset=offset)
        wrong = np.flatnonzero(real != allocation.storage[offset : offset + nbytes])
        if not wrong.size:
            return None
        problem = f"{wrong.size} of {nbytes} bytes differ from those in the OpenCL buffer, first at byte {wrong[0]}"
        return BackendError(message(None, problem, device=self.name))

    def _buffer(self, allocation: DeviceAllocation) -> Any:
        """Return the buffer of an allocation; a new one holds what the simulated memory holds."""
        buffer = self._buffers.get(allocation)
        if buffer is None:
            flags = self._cl.mem_flags
            buffer = self._cl.Buffer(self._context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=allocation.storage)
            self._buffers[allocation] = buffer
        return buffer

    def _copy(self, target: Any, source: Any, **places: Any) -> None:
        event = self._cl.enqueue_copy(self._queue, target, source, **places)
        if event is not None:
            event.wait()
        self.transfers += 1
