"""NVIDIA's driver library, for a capability that OpenCL lacks: memory with device-wide addresses that can be exported.

It needs only the library that every driver installs, not the toolkit. Source: CUDA Driver API, versions 11.0 and later:
device and primary context and virtual memory management.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_uint64, c_void_p
from typing import Any

VIRTUAL_MEMORY, POSIX_DESCRIPTORS = 102, 103
"""Attributes of a device: whether it can map memory at reserved addresses, and export it as file descriptors."""
OUT_OF_MEMORY = 2
_PINNED, _ON_DEVICE, _POSIX_DESCRIPTOR, _READ_WRITE = 1, 1, 1, 3


class Location(ctypes.Structure):
    """CUmemLocation: location of memory, or a device with access to it."""

    _fields_ = [("type", c_int), ("device", c_int)]


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("windows_metadata", c_void_p),
        ("flags", c_uint8 * 8),
    ]


class AccessDescription(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("access", c_int)]


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDeviceGetByPCIBusId": (POINTER(c_int), c_char_p),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceCanAccessPeer": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuMemGetAllocationGranularity": (POINTER(c_size_t), POINTER(AllocationProperties), c_int),
    "cuMemCreate": (POINTER(c_uint64), c_size_t, POINTER(AllocationProperties), c_uint64),
    "cuMemRelease": (c_uint64,),
    "cuMemExportToShareableHandle": (c_void_p, c_uint64, c_int, c_uint64),
    "cuMemAddressReserve": (POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemSetAccess": (c_uint64, c_size_t, POINTER(AccessDescription), c_size_t),
}
"""The parameters of each function; all return a status."""

Loader = Callable[[str, Any], Any]
"""Returns a function of the library by name and prototype. Raises AttributeError."""


class CudaError(Exception):
    """Failure of a driver call."""

    def __init__(self, function: str, status: int, name: str) -> None:
        super().__init__(f"{function} failed with {name}")
        self.status = status


class CudaDriver:
    """The functions of the driver library."""

    def __init__(self, load: Loader) -> None:
        """Initialize the driver. Raises CudaError, and AttributeError for a driver that is too old."""
        self._functions = {name: load(name, ctypes.CFUNCTYPE(c_int, *types)) for name, types in FUNCTIONS.items()}
        self.call("cuInit", 0)

    def call(self, name: str, *args: Any) -> None:
        """Call a function. Raises CudaError for any status but success."""
        status = self.status(name, *args)
        if status:
            raise CudaError(name, status, self._error_name(status))

    def status(self, name: str, *args: Any) -> int:
        """Call a function and return its status."""
        return int(self._functions[name](*args))

    def attribute(self, attribute: int, device: int) -> int:
        """Return an attribute of a device."""
        value = c_int()
        self.call("cuDeviceGetAttribute", value, attribute, device)
        return value.value

    def device(self, pci_address: str) -> int:
        """Return the number of the device at an address such as `0000:1a:00.0`. Raises CudaError if it is not visible."""
        number = c_int()
        self.call("cuDeviceGetByPCIBusId", number, pci_address.encode())
        return number.value

    def _error_name(self, status: int) -> str:
        name = c_char_p()
        self._functions["cuGetErrorName"](status, name)
        return name.value.decode() if name.value else f"status {status}"


class CudaAllocation:
    """Memory of a device at an address that is the same for all devices of the process."""

    def __init__(self, address: int, nbytes: int, handle: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.handle = handle


class CudaDevice:
    """A device with its primary context, which CUDA libraries in this process share."""

    def __init__(self, driver: CudaDriver, number: int) -> None:
        """Open the context, which occupies device memory. Raises CudaError."""
        self._driver = driver
        self.number = number
        self._context = c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", self._context, number)
        with self._current():
            granularity = c_size_t()
            driver.call("cuMemGetAllocationGranularity", granularity, self._properties(), 0)
        self.granularity = granularity.value

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make the context current on the calling thread, and restore the thread's previous one afterwards."""
        self._driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._driver.call("cuCtxPopCurrent_v2", c_void_p())

    def _properties(self) -> AllocationProperties:
        return AllocationProperties(_PINNED, _POSIX_DESCRIPTOR, Location(_ON_DEVICE, self.number), None)

    def allocate(self, nbytes: int, users: list[int]) -> CudaAllocation:
        """Allocate at least `nbytes` and let the devices `users` read and write there. Raises CudaError."""
        call, status = self._driver.call, self._driver.status
        size = -(-nbytes // self.granularity) * self.granularity
        handle, address = c_uint64(), c_uint64()
        with self._current(), ExitStack() as undo:
            call("cuMemCreate", handle, size, self._properties(), 0)
            undo.callback(status, "cuMemRelease", handle)
            call("cuMemAddressReserve", address, size, 0, 0, 0)
            undo.callback(status, "cuMemAddressFree", address, size)
            call("cuMemMap", address, size, 0, handle, 0)
            undo.callback(status, "cuMemUnmap", address, size)
            allocation = CudaAllocation(address.value, size, handle.value)
            self.grant(allocation, users)
            undo.pop_all()
        return allocation

    def can_access(self, peer: CudaDevice) -> bool:
        """Return whether this device can access the memory of another one; True for itself."""
        if peer.number == self.number:
            return True
        possible = c_int()
        self._driver.call("cuDeviceCanAccessPeer", possible, self.number, peer.number)
        return bool(possible.value)

    def grant(self, allocation: CudaAllocation, users: list[int]) -> None:
        """Let devices read and write an allocation. Raises CudaError."""
        access = [AccessDescription(Location(_ON_DEVICE, number), _READ_WRITE) for number in users]
        self._driver.call(
            "cuMemSetAccess",
            allocation.address,
            allocation.nbytes,
            (AccessDescription * len(access))(*access),
            len(access),
        )

    def export(self, allocation: CudaAllocation) -> int:
        """Return a file descriptor by which other drivers can import the memory. Raises CudaError."""
        descriptor = c_int()
        self._driver.call(
            "cuMemExportToShareableHandle", ctypes.byref(descriptor), allocation.handle, _POSIX_DESCRIPTOR, 0
        )
        return descriptor.value

    def free(self, allocation: CudaAllocation) -> None:
        """Free the address range and this driver's reference to the memory. Importers keep their references.

        Raises CudaError.
        """
        with self._current():
            self._driver.call("cuMemUnmap", allocation.address, allocation.nbytes)
            self._driver.call("cuMemAddressFree", allocation.address, allocation.nbytes)
            self._driver.call("cuMemRelease", allocation.handle)


@functools.cache
def cuda_driver() -> CudaDriver | None:
    """Return NVIDIA's driver; None without one, or if it lacks required functions."""
    if not sys.platform.startswith("linux"):
        return None  # other systems export memory in other forms
    try:
        library = ctypes.CDLL("libcuda.so.1")
        return CudaDriver(lambda name, prototype: prototype((name, library)))
    except (OSError, AttributeError, CudaError):
        return None
