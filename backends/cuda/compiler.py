"""Compilers of OpenCL C to PTX. Kernels are compiled when they are first used and kept in the program cache.

NVIDIA's OpenCL driver contains the compiler; its output runs on the CUDA driver after the rewriting of `ptx`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from polyhal.backends.common.cuda_driver import CudaDriver
from polyhal.backends.cuda.capabilities import PLATFORM, compute_capability


class CompilationError(Exception):
    """The compiler refuses a program. The text is its log."""


class KernelCompiler(Protocol):
    """A compiler for one device."""

    name: str
    """Name and version, as `doctor` shows them."""

    def compile(self, text: str, flags: Sequence[str]) -> bytes:
        """Return the PTX of a program. Raises CompilationError."""


class OpenCLCompiler:
    """The compiler in NVIDIA's OpenCL driver. Implements `KernelCompiler`.

    Its context takes more than a second to open, so it is opened for the first program that is not in the cache.
    """

    def __init__(self, device: Any) -> None:
        """`device` is a pyopencl device."""
        import pyopencl as cl

        self._cl = cl
        self._device = device
        self._context: Any = None
        self._lock = threading.Lock()
        self.name = f"{device.platform.name} {device.driver_version}"

    def compile(self, text: str, flags: Sequence[str]) -> bytes:
        """Return the PTX of a program. Raises CompilationError, also if the driver cannot open the device."""
        from polyhal.backends.opencl_c import compiler_warnings

        try:
            with self._lock:
                if self._context is None:
                    self._context = self._cl.Context([self._device])
            program = self._cl.Program(self._context, text)
            with compiler_warnings.ignored:
                # pyopencl's cache would store the program a second time; its annotation does not include False.
                program.build(list(flags), [self._device], cache_dir=False)  # type: ignore[arg-type]
        except self._cl.Error as error:
            raise CompilationError(str(error)) from None
        info: Any = program.get_info
        return bytes(info(self._cl.program_info.BINARIES)[0])


def find_compiler(driver: CudaDriver, device: int, address: str) -> OpenCLCompiler | str:
    """Return the compiler for a device at a PCI address, else for one of equal compute capability; or why there is none."""
    try:
        import pyopencl as cl
    except ImportError:
        return "pyopencl is not installed"
    try:
        platforms = [p for p in cl.get_platforms() if p.name == PLATFORM]
        devices = [d for p in platforms for d in p.get_devices()]
    except cl.Error as error:
        return f"NVIDIA's OpenCL driver fails: {error}"
    if not platforms:
        return "NVIDIA's OpenCL driver is not installed"
    wanted = compute_capability(driver, device)
    equal = [d for d in devices if 10 * d.compute_capability_major_nv + d.compute_capability_minor_nv == wanted]
    bus = int(address.split(":")[1], 16)
    chosen = next((d for d in equal if d.pci_bus_id_nv == bus), next(iter(equal), None))
    if chosen is None:
        return f"NVIDIA's OpenCL driver has no device of compute capability {wanted / 10:.1f}"
    return OpenCLCompiler(chosen)
