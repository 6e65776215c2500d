"""Direct calls of the driver, for operations repeated thousands of times with arguments known in advance.

pyopencl wraps each enqueue in argument conversion and an event object. This module calls C functions of the same loader
instead, and the functions of the extension cl_khr_command_buffer, which pyopencl does not support.

Source: OpenCL 3.0 Extension Specification, cl_khr_command_buffer 1.0 and cl_khr_command_buffer_mutable_dispatch 0.9.3.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import cffi
import pyopencl as cl

ffi = cffi.FFI()
ffi.cdef(
    """
    int clEnqueueNDRangeKernel(
        void *queue, void *kernel, unsigned int dimensions, const size_t *offset, const size_t *items,
        const size_t *group, unsigned int waits, const void *events, void **event);
    void *clCreateKernel(void *program, const char *name, int *status);
    int clSetKernelArg(void *kernel, unsigned int place, size_t size, const void *value);
    int clGetDeviceInfo(void *device, unsigned int what, size_t size, void *value, size_t *written);
    void *clGetExtensionFunctionAddressForPlatform(void *platform, const char *name);
    void *clCreateBufferWithProperties(
        void *context, const uint64_t *properties, uint64_t flags, size_t size, void *host, int *status);
    typedef int (*enqueue_external)(
        void *queue, unsigned int count, void **objects, unsigned int waits, const void *events, void **event);

    typedef struct { unsigned int place; size_t size; const void *value; } argument;
    typedef struct {
        void *command;
        unsigned int arguments, pointers, properties, dimensions;
        const argument *argument_list;
        const argument *pointer_list;
        const void *property_list;
        const size_t *offset, *items, *group;
    } dispatch;
    typedef void *(*create_commands)(unsigned int, void **, const uint64_t *, int *);
    typedef int (*add_kernel)(
        void *, void *, const uint64_t *, void *, unsigned int, const size_t *, const size_t *, const size_t *,
        unsigned int, const unsigned int *, unsigned int *, void **);
    typedef int (*on_commands)(void *);
    typedef int (*enqueue_commands)(unsigned int, void **, void *, unsigned int, const void *, void **);
    typedef int (*update_commands)(void *, unsigned int, const unsigned int *, const void **);
    """
)

_LIBRARY: Any = ffi.dlopen("OpenCL.dll" if sys.platform == "win32" else cl._cl.__file__)
"""The OpenCL loader: opened by name on Windows, elsewhere through the extension module that links against it."""
_COMMAND_BUFFER = "cl_khr_command_buffer"
_MUTABLE_DISPATCH = "cl_khr_command_buffer_mutable_dispatch"
_FIRST_VERSION = (0, 9, 3)
"""Oldest supported version of mutable dispatch: from it, updates are a list of structures without a common header."""
_COMMAND_BUFFER_CAPABILITIES, _SIMULTANEOUS_USE = 0x12A9, 1 << 2
_MUTABLE_DISPATCH_CAPABILITIES, _ARGUMENTS = 0x12B0, 1 << 3


class Driver:
    """The functions of one device's driver."""

    def __init__(self, device: cl.Device) -> None:
        self.enqueue: Any = _LIBRARY.clEnqueueNDRangeKernel
        self.set_argument: Any = _LIBRARY.clSetKernelArg
        self.create_buffer: Any = getattr(_LIBRARY, "clCreateBufferWithProperties", None)
        """Function of OpenCL 3.0; None with an older loader."""
        self.acquire_external = self._extension_function(device, "clEnqueueAcquireExternalMemObjectsKHR")
        self.release_external = self._extension_function(device, "clEnqueueReleaseExternalMemObjectsKHR")
        """Acquire and release imported memory; None if memory of other drivers cannot be imported."""
        self.command_buffers = self._command_buffer_functions(device)
        """Command buffer functions; None unless the device can update and submit a buffer that is still in flight."""

    def _extension_function(self, device: cl.Device, name: str) -> Any:
        """Return an extension function that enqueues memory objects; None if the driver lacks it."""
        address = _LIBRARY.clGetExtensionFunctionAddressForPlatform(pointer(device.platform), name.encode())
        return None if address == ffi.NULL else ffi.cast("enqueue_external", address)

    def _command_buffer_functions(self, device: cl.Device) -> CommandBufferFunctions | None:
        versions = extension_versions(device)
        if _COMMAND_BUFFER not in versions or versions.get(_MUTABLE_DISPATCH, (0, 0, 0)) < _FIRST_VERSION:
            return None
        if not (
            self._bits(device, _COMMAND_BUFFER_CAPABILITIES) & _SIMULTANEOUS_USE
            and self._bits(device, _MUTABLE_DISPATCH_CAPABILITIES) & _ARGUMENTS
        ):
            return None
        platform = pointer(device.platform)
        addresses = [
            _LIBRARY.clGetExtensionFunctionAddressForPlatform(platform, name.encode())
            for name in CommandBufferFunctions.NAMES
        ]
        return None if ffi.NULL in addresses else CommandBufferFunctions(addresses)

    def _bits(self, device: cl.Device, parameter: int) -> int:
        """Return a bit field of device information; 0 if the device does not support the parameter."""
        value = ffi.new("uint64_t *")
        status = _LIBRARY.clGetDeviceInfo(pointer(device), parameter, ffi.sizeof("uint64_t"), value, ffi.NULL)
        return 0 if status else int(value[0])


def create_kernel(program: cl.Program, name: str) -> cl.Kernel:
    """Return a new kernel object. Raises pyopencl.Error.

    pyopencl's constructor would generate or look up Python code for the launch, which takes 0.3 ms.
    """
    status = ffi.new("int *")
    handle = _LIBRARY.clCreateKernel(pointer(program), name.encode(), status)
    if status[0]:
        raise cl.RuntimeError(cl._cl._ErrorRecord("no kernel object", status[0], "clCreateKernel"))
    return cl.Kernel.from_int_ptr(int(ffi.cast("intptr_t", handle)), False)


class CommandBufferFunctions:
    """The functions of cl_khr_command_buffer and of mutable dispatch."""

    NAMES = (
        "clCreateCommandBufferKHR",
        "clCommandNDRangeKernelKHR",
        "clFinalizeCommandBufferKHR",
        "clEnqueueCommandBufferKHR",
        "clUpdateMutableCommandsKHR",
        "clReleaseCommandBufferKHR",
    )

    def __init__(self, addresses: Sequence[Any]) -> None:
        types = ("create_commands", "add_kernel", "on_commands", "enqueue_commands", "update_commands", "on_commands")
        self.create, self.add, self.finalize, self.enqueue, self.update, self.release = (
            ffi.cast(kind, address) for kind, address in zip(types, addresses, strict=True)
        )


def extension_versions(device: cl.Device) -> dict[str, tuple[int, int, int]]:
    """Return (major, minor, patch) of each extension. Empty before OpenCL 3.0, which cannot report versions."""
    try:
        extensions = device.extensions_with_version
    except cl.Error:
        return {}
    return {x.name: (x.version >> 22, x.version >> 12 & 0x3FF, x.version & 0xFFF) for x in extensions}


def pointer(wrapped: Any) -> Any:
    """Return the driver's handle of a pyopencl object."""
    return ffi.cast("void *", wrapped.int_ptr)
