"""Host memory that kernels use in place, on devices that are the host's processor.

OpenCL allows drivers to copy the host memory of a buffer (USE_HOST_PTR) and to return a copy when a buffer is mapped.
CPU drivers do neither; a probe on the device confirms this once before it is relied on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.hal.core.memory.host_bytes import host_bytes

_PROBE_BYTES = 3 << 12
_MISALIGNED = 4
"""Offset in bytes that misaligns the probe's memory in the worst way."""


class HostSharing:
    """Creates buffers over host memory, and returns host addresses of buffers."""

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._works: bool | None = None

    def buffer(self, address: int, nbytes: int) -> cl.Buffer | None:
        """Return a buffer over host memory; None if the driver would copy or refuses."""
        if not self.works():
            return None
        try:
            return self._buffer_over(host_bytes(address, nbytes))
        except cl.Error:  # larger than the driver's maximum allocation
            return None

    def address(self, buffer: cl.Buffer, nbytes: int) -> int | None:
        """Return the host address of a buffer, valid for its lifetime; None if it is not in host memory.

        Waits for the queue.
        """
        return self._address(buffer, nbytes) if self.works() else None

    def works(self) -> bool:
        """Return whether kernels and the host share memory, by a probe of both directions."""
        if self._works is None:
            try:
                self._works = self._runtime.features.cpu and self._probe()
            except cl.Error:
                self._works = False
        return self._works

    def _probe(self) -> bool:
        memory = np.zeros(_PROBE_BYTES + _MISALIGNED, np.uint8)[_MISALIGNED:]
        given = self._buffer_over(memory)
        made = cl.Buffer(self._runtime.context, cl.mem_flags.READ_WRITE, _PROBE_BYTES)
        try:
            return self._is_shared(given, memory) and self._is_shared(
                made, host_bytes(self._address(made, _PROBE_BYTES), _PROBE_BYTES)
            )
        finally:
            self._runtime.queue.finish()
            given.release()
            made.release()

    def _is_shared(self, buffer: cl.Buffer, memory: np.ndarray) -> bool:
        """Return whether device writes to `buffer` appear in `memory`, and host writes in `buffer`, twice."""
        queue = self._runtime.queue
        target = cl.Buffer(self._runtime.context, cl.mem_flags.READ_WRITE, _PROBE_BYTES)
        read = np.empty(_PROBE_BYTES, np.uint8)
        for value in (3, 5):
            cl.enqueue_fill_buffer(queue, buffer, np.full(1, value, np.uint8), 0, _PROBE_BYTES)
            queue.finish()
            if (memory != value).any():
                return False
            memory[:] = value + 1
            cl.enqueue_copy(queue, target, buffer)
            cl.enqueue_copy(queue, read, target, is_blocking=True)
            if (read != value + 1).any():
                return False
        return True

    def _buffer_over(self, memory: np.ndarray) -> cl.Buffer:
        flags: Any = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        return cl.Buffer(self._runtime.context, flags, hostbuf=memory)

    def _address(self, buffer: cl.Buffer, nbytes: int) -> int:
        queue = self._runtime.queue
        access: Any = cl.map_flags.READ | cl.map_flags.WRITE
        mapped: Any
        mapped, _ = cl.enqueue_map_buffer(queue, buffer, access, 0, (nbytes,), np.dtype(np.uint8), is_blocking=True)
        address: int = mapped.__array_interface__["data"][0]
        mapped.base.release(queue)
        return address
