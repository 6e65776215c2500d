"""The cores of emulated devices: kernels in OpenCL C, compiled and run by an OpenCL runtime for the host's processor."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cffi
import pyopencl as cl

from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.driver import pointer
from polyhal.backends.opencl_c import compiler_warnings
from polyhal.hal.capabilities import DeviceType

_ffi = cffi.FFI()
_ffi.cdef(
    """
    int clSetKernelArg(void *kernel, unsigned int place, size_t size, const void *value);
    int clSetKernelArgSVMPointer(void *kernel, unsigned int place, const void *address);
    int clEnqueueNDRangeKernel(
        void *queue, void *kernel, unsigned int dimensions, const size_t *offset, const size_t *items,
        const size_t *group, unsigned int waits, const void *events, void **event);
    int clFinish(void *queue);
    """
)
_SIZES = {
    "char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4, "long": 8, "ulong": 8, "double": 8,
}  # fmt: skip
"""Bytes of scalars by the names of their types."""
_LARGEST_STRUCT = 4096
_SPACES = {cl.kernel_arg_address_qualifier.LOCAL: "shared", cl.kernel_arg_address_qualifier.PRIVATE: ""}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel."""

    space: str
    """Memory that the parameter points to, `global` or `shared`; empty for a value."""
    type: str
    size: int
    """Bytes of the value or the pointer."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiler's output: the runtime's own binary, and what its kernels take."""

    binary: bytes
    kernels: dict[str, tuple[Parameter, ...]]
    local: dict[str, int]
    """Bytes of local memory that each kernel declares."""


class Processor:
    """An OpenCL device of the host. Kernels get the plain addresses of host memory (SVM)."""

    def __init__(self, found: discovery.OpenCLDevice) -> None:
        self.found = found
        """Description of the device by discovery."""
        self.device = device = found.cl
        self.name = f"{device.platform.name} {device.driver_version}"
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(self._context)
        self._library: Any = _ffi.dlopen(cl._cl.__file__)  # the extension module is linked against the loader
        self._lock = threading.RLock()

    def compile(self, text: str, flags: Sequence[str]) -> Compiled:
        """Compile a program. Raises pyopencl.RuntimeError with the log."""
        with self._lock:
            program = self._build(text, flags)
            kernels = {k.function_name: (k, _declared(k)) for k in program.all_kernels()}
            sizes = dict(_SIZES)
            for kernel, declared in kernels.values():
                for place, (space, kind) in enumerate(declared):
                    if not space and kind not in sizes:
                        sizes[kind] = self._accepted_size(kernel, place) or self._struct_size(text, flags, kind)
            binaries: Any = program.get_info(cl.program_info.BINARIES)
        return Compiled(
            bytes(binaries[0]),
            {
                name: tuple(Parameter(space, kind, 8 if space else sizes[kind]) for space, kind in declared)
                for name, (_, declared) in kernels.items()
            },
            {name: self.limits(kernel)[1] for name, (kernel, _) in kernels.items()},
        )

    def load(self, binary: bytes) -> cl.Program:
        """Return the program of a binary. Raises pyopencl.Error."""
        with self._lock, compiler_warnings.ignored:
            return cl.Program(self._context, [self.device], [binary]).build([])

    def run(self, kernel: cl.Kernel, arguments: Sequence[Any], items: Sequence[int], group: Sequence[int]) -> None:
        """Run a kernel to its end. Arguments are addresses, or the bytes of values. Raises RuntimeError with a status."""
        library, handle = self._library, pointer(kernel)
        with self._lock:
            for place, argument in enumerate(arguments):
                if isinstance(argument, int):
                    status = library.clSetKernelArgSVMPointer(handle, place, _ffi.cast("void *", argument))
                else:
                    status = library.clSetKernelArg(handle, place, len(argument), argument)
                if status:
                    raise RuntimeError(f"argument {place} of {kernel.function_name} is refused with {status}")
            sizes = [_ffi.new("size_t[]", list(s)) for s in (items, group)]
            null, queue = _ffi.NULL, pointer(self._queue)
            status = library.clEnqueueNDRangeKernel(queue, handle, len(items), null, *sizes, 0, null, null)
            status = status or library.clFinish(queue)
            if status:
                raise RuntimeError(f"{kernel.function_name} over {items} in groups of {group} fails with {status}")

    def limits(self, kernel: cl.Kernel) -> tuple[int, int, tuple[int, ...]]:
        """Return the largest group of a kernel, its bytes of local memory, and the group that it requires, or zeros."""
        info, keys = kernel.get_work_group_info, cl.kernel_work_group_info
        required = tuple(int(n) for n in info(keys.COMPILE_WORK_GROUP_SIZE, self.device))
        return int(info(keys.WORK_GROUP_SIZE, self.device)), int(info(keys.LOCAL_MEM_SIZE, self.device)), required

    def _build(self, text: str, flags: Sequence[str]) -> cl.Program:
        program = cl.Program(self._context, text)
        with compiler_warnings.ignored:
            program.build([*flags, "-cl-kernel-arg-info"], [self.device], cache_dir=False)  # type: ignore[arg-type]
        return program

    def _accepted_size(self, kernel: cl.Kernel, place: int) -> int:
        """Return the only size that the runtime accepts for an argument; 0 if it accepts all, as PoCL does."""
        zeros = bytes(_LARGEST_STRUCT)
        sizes = (
            n for n in range(1, _LARGEST_STRUCT) if not self._library.clSetKernelArg(pointer(kernel), place, n, zeros)
        )
        size = next(sizes)
        return 0 if size == 1 else size

    def _struct_size(self, text: str, flags: Sequence[str], name: str) -> int:
        """Return the bytes of a struct of a program, by a kernel that writes them."""
        program = self._build(
            f"{text}\n__kernel void struct_size(__global ulong *n) {{ *n = sizeof({name}); }}\n", flags
        )
        size = _ffi.new("unsigned long long *")
        self.run(cl.Kernel(program, "struct_size"), [int(_ffi.cast("uintptr_t", size))], (1,), (1,))
        return int(size[0])


def _declared(kernel: cl.Kernel) -> list[tuple[str, str]]:
    """Return the address space and the type of each parameter."""
    info, keys = kernel.get_arg_info, cl.kernel_arg_info
    return [
        (_SPACES.get(info(i, keys.ADDRESS_QUALIFIER), "global"), str(info(i, keys.TYPE_NAME)))
        for i in range(kernel.num_args)
    ]


@functools.cache
def processor() -> Processor | None:
    """Return the best OpenCL runtime for the host's processor, Intel's before PoCL; None without one."""
    try:
        found = [d for d in discovery.devices() if d.info.type is DeviceType.CPU]
    except (ImportError, RuntimeError):
        return None
    found.sort(key=lambda d: not d.platform.startswith("Intel"))
    return Processor(found[0]) if found else None
