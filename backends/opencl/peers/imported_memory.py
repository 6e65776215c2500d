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
    """Kind of handle to another driver's memory: extension, and buffer property that holds the file descriptor."""

    OPAQUE = "cl_khr_external_memory_opaque_fd", 0x2060
    """NVIDIA's proprietary descriptors."""
    DMA_BUF = "cl_khr_external_memory_dma_buf", 0x2067
    """Linux DMA-BUF descriptors, which drivers of several vendors support."""


class ImportedMemory:
    """A buffer over memory of another driver, which a queue has acquired."""

    def __init__(self, buffer: Any, driver: Driver, queue: cl.CommandQueue) -> None:
        """Acquire the memory. Raises pyopencl.Error."""
        self.buffer = buffer
        self._driver = driver
        self._queue = queue
        self._call(driver.acquire_external, "clEnqueueAcquireExternalMemObjectsKHR")

    def release(self) -> None:
        """Release the memory and this reference to the buffer, after all earlier commands.

        If acquired memory is never released, clReleaseCommandQueue blocks indefinitely: on NVIDIA's driver the process
        would hang at exit.
        """
        self._call(self._driver.release_external, "clEnqueueReleaseExternalMemObjectsKHR")
        self.buffer.release()

    def _call(self, function: Any, name: str) -> None:
        if function is not None:
            objects = ffi.new("void *[]", [pointer(self.buffer)])
            status = function(pointer(self._queue), 1, objects, 0, ffi.NULL, ffi.NULL)
            if status:
                raise cl.RuntimeError(cl._cl._ErrorRecord("no access to external memory", status, name))


class MemoryImporter:
    """Creates buffers of one context over memory of another driver."""

    def __init__(self, context: cl.Context, device: cl.Device, driver: Driver) -> None:
        self._context = context
        self._device = device
        self._driver = driver
        self._keeps_descriptors: bool | None = None
        """True if this driver owns (and closes) imported descriptors; None until `learn` has found out."""

    def accepts(self, kind: HandleType) -> bool:
        """Return whether the device has the extension and the loader has its functions."""
        return kind.value[0] in self._device.extensions.split() and self._driver.create_buffer is not None

    def load(self, kind: HandleType, descriptor: int, nbytes: int, queue: cl.CommandQueue) -> ImportedMemory:
        """Import all memory of a file descriptor. The importer takes ownership of the descriptor.

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
        try:
            return ImportedMemory(buffer, self._driver, queue)
        except cl.Error:
            buffer.release()
            raise

    def learn(self, kind: HandleType, descriptor: int, nbytes: int, queue: cl.CommandQueue) -> None:
        """Import and release some memory, to test that it works and whether this driver closes descriptors.

        The specification does not say who closes them: closing twice could close another file of the program, and not
        closing would leak descriptors. Raises pyopencl.Error.
        """
        self._keeps_descriptors = None
        imported = self.load(kind, descriptor, nbytes, queue)
        queue.finish()
        imported.release()
        try:
            os.close(descriptor)
            self._keeps_descriptors = False
        except OSError:
            self._keeps_descriptors = True
