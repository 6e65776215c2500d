"""Memory that CUDA allocates and OpenCL uses, on one NVIDIA device: other devices and libraries can address it.

Windows are allocated this way (see `windows`) and, after another library has requested an address, all large
allocations. Until then this module is unused. If exporting is impossible, OpenCL allocates as usual.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from polyhal.backends.common.cuda_driver import CudaError
from polyhal.backends.common.cuda_virtual_memory import (
    POSIX_DESCRIPTORS,
    VIRTUAL_MEMORY,
    CudaAllocation,
    VirtualMemory,
    device_number,
    exporting_driver,
)
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.peers.imported_memory import HandleType, ImportedMemory, MemoryImporter
from polyhal.backends.opencl_c.collectives.participant import Window

EXPORTED_FROM = 8 << 20
"""Minimum bytes of an exported allocation: it takes a file descriptor, and pieces of 2 MiB waste at most a quarter."""
_EXPORTED_BELOW = 512 << 20
"""Exclusive maximum of bytes: on machines with several cards, importing 512 MiB or more crashes NVIDIA's driver 580."""


class _Exported(NamedTuple):
    """An allocation and its imported OpenCL buffer."""

    allocation: CudaAllocation
    imported: ImportedMemory


class ExportedMemory:
    """The exported allocations of one device."""

    def __init__(self, runtime: DeviceRuntime, device: VirtualMemory, importer: MemoryImporter) -> None:
        """Try one allocation. Raises CudaError and pyopencl.Error if it fails."""
        self.device = device
        self._runtime = runtime
        self._importer = importer
        self._users = [device.number]
        """CUDA devices with access to the memory."""
        self._allocations: dict[int, _Exported] = {}
        """Allocations by the address of the buffer in the OpenCL driver."""
        self._imports: list[ImportedMemory] = []
        """Imported memory of other devices."""
        weakref.finalize(self, _release, self._allocations, self._imports)
        self._lock = threading.Lock()
        trial = device.allocate(device.granularity, self._users)
        try:
            importer.learn(HandleType.OPAQUE, device.export(trial), trial.nbytes, runtime.queue)
        finally:
            device.free(trial)

    def allocate(self, nbytes: int) -> tuple[Any, int] | None:
        """Return a buffer of at least `nbytes` and its size; None if the allocation is not possible."""
        if nbytes > _EXPORTED_BELOW - self.device.granularity:
            return None
        try:
            allocation = self.device.allocate(nbytes, self._users)
        except CudaError:
            return None
        try:
            descriptor = self.device.export(allocation)
            imported = self._importer.load(HandleType.OPAQUE, descriptor, allocation.nbytes, self._runtime.queue)
        except (CudaError, cl.Error):
            self.device.free(allocation)
            return None
        with self._lock:
            self._allocations[imported.buffer.int_ptr] = _Exported(allocation, imported)
        return cl.Buffer.from_int_ptr(imported.buffer.int_ptr, True), allocation.nbytes

    def window(self, nbytes: int) -> Window | None:
        """As `WindowMemory.window`."""
        allocation = self.allocate(nbytes)
        if allocation is None:
            return None
        buffer, size = allocation
        cl.enqueue_fill_buffer(self._runtime.queue, buffer, np.zeros(1, np.uint32), 0, size).wait()
        return Window(buffer, size, self.descriptor(buffer))

    def forget(self, buffer_address: int) -> None:
        """Free the allocation of a released buffer, if it was exported."""
        with self._lock:
            exported = self._allocations.pop(buffer_address, None)
        if exported is not None:
            with contextlib.suppress(cl.Error):
                exported.imported.release()
            with contextlib.suppress(CudaError):
                self.device.free(exported.allocation)

    def address(self, buffer: cl.Buffer) -> int | None:
        """Return the CUDA address of a buffer; None if it was not exported."""
        exported = self._allocations.get(buffer.int_ptr)
        return exported.allocation.address if exported is not None else None

    def descriptor(self, buffer: cl.Buffer) -> int:
        """Return a new file descriptor of an exported allocation; the caller owns it. Raises CudaError."""
        return self.device.export(self._allocations[buffer.int_ptr].allocation)

    def import_memory(self, descriptor: int, nbytes: int) -> cl.Buffer:
        """Import another device's memory by descriptor, which is closed; the buffer lives as long as this device.

        `nbytes` is the size of the allocation. Raises pyopencl.Error.
        """
        imported = self._importer.load(HandleType.OPAQUE, descriptor, nbytes, self._runtime.queue)
        with self._lock:
            self._imports.append(imported)
        buffer: cl.Buffer = imported.buffer
        return buffer

    def share_with(self, other: ExportedMemory) -> bool:
        """Give both devices access to present and future allocations of either, if they support it. Raises CudaError."""
        if not (self.device.can_access(other.device) and other.device.can_access(self.device)):
            return False
        self._grant(other.device.number)
        other._grant(self.device.number)
        return True

    def _grant(self, device: int) -> None:
        with self._lock:
            if device not in self._users:
                for exported in self._allocations.values():
                    self.device.grant(exported.allocation, [device])
                self._users.append(device)


def _release(allocations: dict[int, _Exported], imports: list[ImportedMemory]) -> None:
    """Release remaining allocations and imports when the device is closed or the process ends."""
    for imported in [*(exported.imported for exported in allocations.values()), *imports]:
        with contextlib.suppress(cl.Error):
            imported.release()


def open_exported_memory(runtime: DeviceRuntime) -> ExportedMemory | None:
    """Return the exported memory of a device; None if the device does not support it."""
    importer = MemoryImporter(runtime.context, runtime.device, runtime.driver)
    kind, _, address = runtime.info.id.partition("/")
    if kind != "pci" or not importer.accepts(HandleType.OPAQUE):
        return None
    driver = exporting_driver()
    if driver is None:
        return None
    try:
        number = device_number(driver, address)
        if not (driver.attribute(VIRTUAL_MEMORY, number) and driver.attribute(POSIX_DESCRIPTORS, number)):
            return None
        return ExportedMemory(runtime, VirtualMemory(driver, number), importer)
    except (CudaError, cl.Error):
        return None
