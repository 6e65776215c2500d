"""Memory that CUDA allocates and OpenCL uses, on one NVIDIA device: it has an address for other devices and libraries.

Windows are made this way (see `windows`), and once another library has asked for an address, all large allocations. Until then
nothing here runs. Where it cannot be had, memory is as always.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, NamedTuple

import pyopencl as cl

from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.peers.cuda_driver import (
    POSIX_DESCRIPTORS,
    VIRTUAL_MEMORY,
    CudaAllocation,
    CudaDevice,
    CudaError,
    cuda_driver,
)
from polyhal.backends.opencl.peers.imported_memory import HandleType, ImportedMemory, MemoryImporter

EXPORTED_FROM = 8 << 20
"""Bytes. Exported memory comes in pieces of 2 MiB, so that at most a quarter is wasted, and a file descriptor each."""
_EXPORTED_BELOW = 512 << 20
"""Bytes. On machines with several cards, importing 512 MiB or more makes NVIDIA's driver 580 crash."""


class _Exported(NamedTuple):
    """An allocation, and what OpenCL knows of it."""

    allocation: CudaAllocation
    imported: ImportedMemory


class ExportedMemory:
    """The exported allocations of one device."""

    def __init__(self, runtime: DeviceRuntime, device: CudaDevice, importer: MemoryImporter) -> None:
        """Try one allocation. Raises CudaError and pyopencl.Error if that cannot be had."""
        self.device = device
        self._runtime = runtime
        self._importer = importer
        self._users = [device.number]
        """The CUDA devices that reach the memory."""
        self._allocations: dict[int, _Exported] = {}
        """By the address of the buffer in the OpenCL driver."""
        self._imports: list[ImportedMemory] = []
        """Memory of other devices."""
        weakref.finalize(self, _release, self._allocations, self._imports)
        self._lock = threading.Lock()
        trial = device.allocate(device.granularity, self._users)
        try:
            importer.learn(HandleType.OPAQUE, device.export(trial), trial.nbytes, runtime.queue)
        finally:
            device.free(trial)

    def allocate(self, nbytes: int) -> tuple[Any, int] | None:
        """Return a buffer of at least `nbytes` and its size; None if there is none to be had."""
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

    def forget(self, buffer_address: int) -> None:
        """Free the allocation of a buffer that was released, if it is one of these."""
        with self._lock:
            exported = self._allocations.pop(buffer_address, None)
        if exported is not None:
            with contextlib.suppress(cl.Error):
                exported.imported.release()
            with contextlib.suppress(CudaError):
                self.device.free(exported.allocation)

    def address(self, buffer: cl.Buffer) -> int | None:
        """Return where a buffer begins for CUDA; None if it was not exported."""
        exported = self._allocations.get(buffer.int_ptr)
        return exported.allocation.address if exported is not None else None

    def descriptor(self, buffer: cl.Buffer) -> int:
        """Return a new file descriptor of an exported allocation, which belongs to the caller. Raises CudaError."""
        return self.device.export(self._allocations[buffer.int_ptr].allocation)

    def import_memory(self, descriptor: int, nbytes: int) -> cl.Buffer:
        """Return the memory of another device behind a descriptor, which is closed, for as long as this device is open.

        `nbytes` is the size of the allocation. Raises pyopencl.Error.
        """
        imported = self._importer.load(HandleType.OPAQUE, descriptor, nbytes, self._runtime.queue)
        with self._lock:
            self._imports.append(imported)
        buffer: cl.Buffer = imported.buffer
        return buffer

    def share_with(self, other: ExportedMemory) -> bool:
        """Let both devices reach what is and will be allocated on either, if they can. Raises CudaError."""
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
    """Release what is left when the device is closed or the process ends."""
    for imported in [*(exported.imported for exported in allocations.values()), *imports]:
        with contextlib.suppress(cl.Error):
            imported.release()


def open_exported_memory(runtime: DeviceRuntime) -> ExportedMemory | None:
    """Return the exported memory of a device; None if it cannot be had."""
    importer = MemoryImporter(runtime.context, runtime.device, runtime.driver)
    kind, _, address = runtime.info.id.partition("/")
    if kind != "pci" or not importer.accepts(HandleType.OPAQUE):
        return None
    driver = cuda_driver()
    if driver is None:
        return None
    try:
        number = driver.device(address)
        if not (driver.attribute(VIRTUAL_MEMORY, number) and driver.attribute(POSIX_DESCRIPTORS, number)):
            return None
        return ExportedMemory(runtime, CudaDevice(driver, number), importer)
    except (CudaError, cl.Error):
        return None
