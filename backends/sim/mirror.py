"""A mirror of the device's memory in real OpenCL buffers: the same command stream, executed twice.

Each allocation has a buffer, created at the first write. Transfers become writes, copies and reads of the real driver;
kernels compute on the host, and their outputs are then written to the buffers. Bytes that are read back are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.backends.sim.address_space import DeviceAllocation
from polyhal.hal.errors import BackendError, message
from polyhal.hal.system.discovery.registry import registry


class OpenCLMirror:
    """OpenCL buffers of one device. Only called by its command processor."""

    def __init__(self) -> None:
        """Open the first OpenCL device. Raises ValueError if there is none."""
        registry().probe("opencl")  # registers drivers installed as packages, which must precede the first listing
        import pyopencl as cl

        try:
            devices = [d for platform in cl.get_platforms() for d in platform.get_devices()]
        except cl.Error as error:
            raise ValueError(f"mirror=opencl needs an OpenCL driver: {error}") from error
        if not devices:
            raise ValueError("mirror=opencl needs an OpenCL device, but none was found")
        self.name = devices[0].name.strip()
        self.transfers = 0
        """Number of commands executed by the real driver."""
        self._cl = cl
        self._context = cl.Context(devices[:1])
        self._queue = cl.CommandQueue(self._context)
        self._buffers: dict[DeviceAllocation, Any] = {}

    def forget(self, allocation: DeviceAllocation) -> None:
        """Release the buffer of an allocation that was freed."""
        self._buffers.pop(allocation, None)

    def write(self, allocation: DeviceAllocation, offset: int, nbytes: int) -> None:
        """Write the output of a transfer or a kernel to the buffer."""
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
        """Read bytes back, and return an error if they differ from the simulated memory."""
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
        """Return the buffer of an allocation, at first created as a copy of the simulated memory."""
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
