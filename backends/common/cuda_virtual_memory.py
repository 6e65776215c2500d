"""Memory of a CUDA device that other devices, processes and drivers map.

Source: CUDA Driver API, versions 11.0 and later: device and primary context and virtual memory management.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Any

from polyhal.backends.common.cuda_context import PrimaryContext
from polyhal.backends.common.cuda_driver import CudaDriver, CudaError, cuda_driver, ffi

VIRTUAL_MEMORY, POSIX_DESCRIPTORS = 102, 103
"""Attributes of a device: whether it can map memory at reserved addresses, and export it as file descriptors."""
_PINNED, _ON_DEVICE, _POSIX_DESCRIPTOR, _READ_WRITE = 1, 1, 1, 3


class CudaAllocation:
    """Memory of a device at an address that is the same for all devices of the process."""

    def __init__(self, address: int, nbytes: int, handle: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.handle = handle


class VirtualMemory:
    """Allocations of a device with its primary context, which CUDA libraries in this process share."""

    def __init__(self, driver: CudaDriver, number: int) -> None:
        """Open the context, which occupies device memory. Raises CudaError."""
        self._driver = driver
        self.number = number
        self._current = PrimaryContext(driver, number)
        with self._current:
            self.granularity = int(driver.value("cuMemGetAllocationGranularity", "size_t *", self._properties(), 0))

    def _properties(self) -> Any:
        location = {"type": _ON_DEVICE, "id": self.number}
        return ffi.new(
            "CUmemAllocationProp *", {"type": _PINNED, "handle_types": _POSIX_DESCRIPTOR, "location": location}
        )

    def allocate(self, nbytes: int, users: list[int]) -> CudaAllocation:
        """Allocate at least `nbytes` and let the devices `users` read and write there. Raises CudaError."""
        size = -(-nbytes // self.granularity) * self.granularity
        with self._current:
            handle = int(self._driver.value("cuMemCreate", "unsigned long long *", size, self._properties(), 0))
            return self._map(handle, size, users)

    def import_memory(self, descriptor: int, nbytes: int, users: list[int]) -> CudaAllocation:
        """Map the allocation of a file descriptor, for `users`, and close the descriptor. Raises CudaError.

        `nbytes` is the size of the allocation.
        """
        try:
            with self._current:
                shared = ffi.cast("void *", descriptor)
                function = "cuMemImportFromShareableHandle"
                handle = int(self._driver.value(function, "unsigned long long *", shared, _POSIX_DESCRIPTOR))
                return self._map(handle, nbytes, users)
        finally:
            os.close(descriptor)

    def _map(self, handle: int, size: int, users: list[int]) -> CudaAllocation:
        """Map memory at a new address. Releases the handle if that fails. The context must be current."""
        call, value, status = self._driver.call, self._driver.value, self._driver.status
        with ExitStack() as undo:
            undo.callback(status, "cuMemRelease", handle)
            address = int(value("cuMemAddressReserve", "CUdeviceptr *", size, 0, 0, 0))
            undo.callback(status, "cuMemAddressFree", address, size)
            call("cuMemMap", address, size, 0, handle, 0)
            undo.callback(status, "cuMemUnmap", address, size)
            allocation = CudaAllocation(address, size, handle)
            self.grant(allocation, users)
            undo.pop_all()
        return allocation

    def can_access(self, peer: VirtualMemory) -> bool:
        """Return whether this device can access the memory of another one; True for itself."""
        if peer.number == self.number:
            return True
        return bool(self._driver.value("cuDeviceCanAccessPeer", "int *", self.number, peer.number))

    def grant(self, allocation: CudaAllocation, users: list[int]) -> None:
        """Let devices read and write an allocation. Raises CudaError."""
        access = ffi.new("CUmemAccessDesc[]", [((_ON_DEVICE, number), _READ_WRITE) for number in users])
        self._driver.call("cuMemSetAccess", allocation.address, allocation.nbytes, access, len(access))

    def export(self, allocation: CudaAllocation) -> int:
        """Return a file descriptor by which other drivers can import the memory. Raises CudaError."""
        return int(self._driver.value("cuMemExportToShareableHandle", "int *", allocation.handle, _POSIX_DESCRIPTOR, 0))

    def free(self, allocation: CudaAllocation) -> None:
        """Free the address range and this driver's reference to the memory. Importers keep their references.

        Raises CudaError.
        """
        with self._current:
            self._driver.call("cuMemUnmap", allocation.address, allocation.nbytes)
            self._driver.call("cuMemAddressFree", allocation.address, allocation.nbytes)
            self._driver.call("cuMemRelease", allocation.handle)


def exporting_driver() -> CudaDriver | None:
    """Return NVIDIA's driver; None without one, or if it lacks required functions."""
    if not sys.platform.startswith("linux"):
        return None  # other systems export memory in other forms
    try:
        return cuda_driver()
    except (OSError, CudaError):
        return None


def device_number(driver: CudaDriver, address: str) -> int:
    """Return the number of the device at an address such as `0000:1a:00.0`. Raises CudaError if it is not visible."""
    return int(driver.value("cuDeviceGetByPCIBusId", "CUdevice *", address.encode()))
