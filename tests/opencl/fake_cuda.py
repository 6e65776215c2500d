# ruff: noqa: N802 - the names are those of the library
"""NVIDIA's driver library in Python: device memory is shared host memory, which other drivers import by file descriptor."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import threading
from typing import Any

from polyhal.backends.common.cuda_driver import OLDEST, OUT_OF_MEMORY, ffi

GRANULARITY = 1 << 16
_INVALID = 1
_FIXED = 0x10
"""MAP_FIXED of Linux."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class FakeCuda:
    """Devices by their PCI address. `refused` names functions that fail, with their status."""

    def __init__(self, *addresses: str, peers: bool = True, capacity: int = 1 << 30) -> None:
        self.devices = {address.encode(): number for number, address in enumerate(addresses)}
        self.peers = peers
        self.capacity = capacity
        self.refused: dict[str, int] = {}
        self.calls: list[str] = []
        self.live: dict[int, int] = {}
        """Sizes of live allocations by handle."""
        self._objects: dict[int, Any] = {}
        self._numbers = itertools.count(0x1000)
        self._ranges: dict[int, list[Any]] = {}
        """Size and users of mapped ranges by address."""
        self._keep: list[Any] = []
        self._current = threading.local()

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if not name.startswith("cu"):
            return method

        def function(*args: Any) -> int:
            self.calls.append(name)
            return self.refused.get(name) or int(method(*args) or 0)

        return function

    def _new(self, value: Any) -> int:
        number = next(self._numbers)
        self._objects[number] = value
        return number

    def _stack(self) -> list[int]:
        if not hasattr(self._current, "stack"):
            self._current.stack = []
        return self._current.stack  # type: ignore[no-any-return]

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDriverGetVersion(self, out: Any) -> None:
        out[0] = OLDEST

    def cuGetErrorName(self, status: int, out: Any) -> int:
        name = {_INVALID: b"CUDA_ERROR_INVALID_VALUE", OUT_OF_MEMORY: b"CUDA_ERROR_OUT_OF_MEMORY"}.get(status)
        if name is None:
            return _INVALID
        self._keep.append(ffi.new("char[]", name))
        out[0] = self._keep[-1]
        return 0

    def cuGetErrorString(self, status: int, out: Any) -> int:
        return self.cuGetErrorName(status, out)

    def cuDeviceGetByPCIBusId(self, out: Any, address: bytes) -> int:
        if address not in self.devices:
            return 101
        out[0] = self.devices[address]
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> None:
        out[0] = 1

    def cuDeviceCanAccessPeer(self, out: Any, device: int, peer: int) -> None:
        out[0] = self.peers

    def cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        out[0] = ffi.cast("CUcontext", device + 1)

    def cuCtxPushCurrent_v2(self, context: Any) -> None:
        self._stack().append(int(ffi.cast("intptr_t", context)) - 1)

    def cuCtxPopCurrent_v2(self, out: Any) -> int:
        if not self._stack():
            return _INVALID
        out[0] = ffi.cast("CUcontext", self._stack().pop() + 1)
        return 0

    def cuCtxGetCurrent(self, out: Any) -> None:
        out[0] = ffi.cast("CUcontext", self._stack()[-1] + 1 if self._stack() else 0)

    def cuMemGetAllocationGranularity(self, out: Any, properties: Any, kind: int) -> None:
        out[0] = GRANULARITY

    def cuMemCreate(self, out: Any, size: int, properties: Any, flags: int) -> int:
        asked = properties[0]
        if size % GRANULARITY or (asked.type, asked.handle_types, asked.location.type) != (1, 1, 1):
            return _INVALID
        if sum(self.live.values()) + size > self.capacity:
            return OUT_OF_MEMORY
        descriptor = os.memfd_create("cuda")
        os.ftruncate(descriptor, size)
        out[0] = self._new(descriptor)
        self.live[out[0]] = size
        return 0

    def cuMemRelease(self, handle: int) -> None:
        del self.live[handle]
        os.close(self._objects.pop(handle))

    def cuMemExportToShareableHandle(self, out: Any, handle: int, kind: int, flags: int) -> int:
        if kind != 1:
            return _INVALID
        out[0] = os.dup(self._objects[handle])
        return 0

    def cuMemAddressReserve(self, out: Any, size: int, alignment: int, hint: int, flags: int) -> None:
        out[0] = _libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)

    def cuMemAddressFree(self, address: int, size: int) -> int:
        return int(_libc.munmap(address, size))

    def cuMemMap(self, address: int, size: int, offset: int, handle: int, flags: int) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE
        mapped = _libc.mmap(address, size, access, mmap.MAP_SHARED | _FIXED, self._objects[handle], offset)
        assert mapped == address
        self._ranges[address] = [size, set()]

    def cuMemUnmap(self, address: int, size: int) -> int:
        assert self._ranges.pop(address)[0] == size
        mapped = _libc.mmap(address, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED, -1, 0)
        return int(mapped != address)

    def cuMemSetAccess(self, address: int, size: int, access: Any, count: int) -> int:
        for i in range(count):
            if access[i].flags != 3:
                return _INVALID
            self._ranges[address][1].add(access[i].location.id)
        return 0
