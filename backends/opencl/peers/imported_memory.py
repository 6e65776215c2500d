"""Buffers over memory of other drivers: cl_khr_external_memory.

Source: OpenCL 3.0 Extension Specification, cl_khr_external_memory and cl_khr_external_memory_opaque_fd, version 1.0.
"""

from __future__ import annotations

import enum
import os
from typing import Any

import pyopencl as cl

from polyhal.backends.opencl.driver import Driver, ffi, pointer


class HandleType(enum.Enum):
    """How another driver names memory: the extension, and the property of a buffer that holds a file descriptor."""

    OPAQUE = "cl_khr_external_memory_opaque_fd", 0x2060
    """NVIDIA's own descriptors."""
    DMA_BUF = "cl_khr_external_memory_dma_buf", 0x2067
    """Descriptors of Linux, which drivers of several vendors know."""


class MemoryImporter:
    """Makes buffers of one context over memory of another driver."""

    def __init__(self, context: cl.Context, device: cl.Device, driver: Driver) -> None:
        self._context = context
        self._device = device
        self._driver = driver
        self._keeps_descriptors: bool | None = None
        """Whether this driver owns the descriptors that it has imported; None as long as that is not known."""

    def accepts(self, kind: HandleType) -> bool:
        """Return whether the device has the extension, and the loader its functions."""
        return kind.value[0] in self._device.extensions.split() and self._driver.create_buffer is not None

    def load(self, kind: HandleType, descriptor: int, nbytes: int, queue: cl.CommandQueue) -> Any:
        """Return a buffer over all of the memory behind a file descriptor, which belongs to the importer from now on.

        Raises pyopencl.Error.
        """
        status = ffi.new("int *")
        properties = ffi.new("uint64_t[]", [kind.value[1], descriptor, 0])
        flags = int(cl.mem_flags.READ_WRITE)
        handle = self._driver.create_buffer(pointer(self._context), properties, flags, nbytes, ffi.NULL, status)
        if status[0]:
            os.close(descriptor)
            raise cl.RuntimeError(cl._cl._ErrorRecord("no buffer", status[0], "clCreateBufferWithProperties"))
        if self._keeps_descriptors is False:
            os.close(descriptor)
        buffer: Any = cl.Buffer.from_int_ptr(int(ffi.cast("intptr_t", handle)), False)
        acquire = self._driver.acquire_external
        if acquire is not None:
            failed = acquire(pointer(queue), 1, ffi.new("void *[]", [handle]), 0, ffi.NULL, ffi.NULL)
            if failed:
                buffer.release()
                raise cl.RuntimeError(
                    cl._cl._ErrorRecord("no access", failed, "clEnqueueAcquireExternalMemObjectsKHR")
                )
        return buffer

    def learn(self, kind: HandleType, descriptor: int, nbytes: int, queue: cl.CommandQueue) -> None:
        """Import and release some memory, to see that it works and whether this driver closes descriptors.

        The specification leaves the latter open: closing one twice could close a file of the program, and not at all would
        use them up. Raises pyopencl.Error.
        """
        self._keeps_descriptors = None
        buffer = self.load(kind, descriptor, nbytes, queue)
        queue.finish()
        buffer.release()
        try:
            os.close(descriptor)
            self._keeps_descriptors = False
        except OSError:
            self._keeps_descriptors = True
