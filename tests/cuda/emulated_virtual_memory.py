# ruff: noqa: N802 - names of the library
"""Virtual memory of the emulated driver: allocations that several devices, and other processes by file descriptor, map."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from emulated_memory import Block
from emulated_statuses import INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, Refused

from polyhal.backends.common.cuda_driver import ffi

if TYPE_CHECKING:
    from emulated_machine import EmulatedDevice, Machine

GRANULARITY = 1 << 16
_FIXED = 0x10
"""MAP_FIXED of Linux."""
_READ_AND_WRITE = 3
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@dataclass(eq=False)
class Allocation:
    """Physical memory of a device. Each handle counts as a reference, and each mapping."""

    descriptor: int
    size: int
    device: EmulatedDevice
    references: int = 1

    def drop(self) -> None:
        """Drop a reference; the last one releases the memory."""
        self.references -= 1
        if not self.references:
            self.device.pool.used -= self.size
            os.close(self.descriptor)


@dataclass(eq=False)
class Mapping:
    """Reserved addresses, with an allocation or without."""

    size: int
    allocation: Allocation | None = None
    block: Block | None = None
    accessors: set[EmulatedDevice] = field(default_factory=set)


class VirtualMemoryFunctions:
    """The driver's functions for virtual memory."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._allocations: dict[int, Allocation] = {}
        """Allocations by handle."""
        self._mappings: dict[int, Mapping] = {}
        """Reserved addresses by their start."""
        self._next = 1

    def cuMemGetAllocationGranularity(self, nbytes: Any, properties: Any, kind: int) -> None:
        nbytes[0] = GRANULARITY

    def cuMemCreate(self, handle: Any, nbytes: int, properties: Any, flags: int) -> None:
        wanted = properties[0]
        if nbytes % GRANULARITY or (wanted.type, wanted.handle_types, wanted.location.type) != (1, 1, 1):
            raise Refused(INVALID_VALUE, f"{nbytes} bytes of type {wanted.type}, handles of type {wanted.handle_types}")
        device = self._machine.device(wanted.location.id)
        if not device.pool.take(nbytes):
            raise Refused(OUT_OF_MEMORY, f"{nbytes} bytes, {device.pool.used} of {device.pool.capacity} in use")
        descriptor = os.memfd_create("emulated")
        os.ftruncate(descriptor, nbytes)
        handle[0] = self._new(Allocation(descriptor, nbytes, device))

    def cuMemRelease(self, handle: int) -> None:
        self._found(handle).drop()
        del self._allocations[handle]

    def cuMemExportToShareableHandle(self, shareable: Any, handle: int, kind: int, flags: int) -> None:
        if kind != 1:
            raise Refused(INVALID_VALUE, f"handles of type {kind}")
        ffi.cast("int *", shareable)[0] = os.dup(self._found(handle).descriptor)

    def cuMemImportFromShareableHandle(self, handle: Any, shareable: Any, kind: int) -> None:
        identity = os.fstat(int(ffi.cast("intptr_t", shareable))).st_ino
        found = [a for a in self._allocations.values() if os.fstat(a.descriptor).st_ino == identity]
        if kind != 1 or not found:
            raise Refused(INVALID_VALUE, "the descriptor is not of an allocation")
        found[0].references += 1
        handle[0] = self._new(found[0])

    def cuMemAddressReserve(self, address: Any, nbytes: int, alignment: int, wish: int, flags: int) -> None:
        address[0] = _libc.mmap(None, nbytes, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        self._mappings[address[0]] = Mapping(nbytes)

    def cuMemAddressFree(self, address: int, nbytes: int) -> None:
        mapping = self._mapping(address, nbytes)
        if mapping.allocation is not None:
            raise Refused(INVALID_VALUE, f"{address:#x} is mapped")
        del self._mappings[address]
        _libc.munmap(address, nbytes)

    def cuMemMap(self, address: int, nbytes: int, offset: int, handle: int, flags: int) -> None:
        mapping, allocation = self._mapping(address, nbytes), self._found(handle)
        if mapping.allocation is not None or nbytes != allocation.size or offset or flags:
            raise Refused(INVALID_VALUE, f"{nbytes} bytes of an allocation of {allocation.size}")
        access = mmap.PROT_READ | mmap.PROT_WRITE
        if _libc.mmap(address, nbytes, access, mmap.MAP_SHARED | _FIXED, allocation.descriptor, 0) != address:
            raise Refused(INVALID_VALUE, "the memory cannot be mapped")
        allocation.references += 1
        mapping.allocation = allocation
        array = np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)
        outside = np.empty(0, np.uint8)
        mapping.block = Block(
            address, nbytes, array, (outside, outside), allocation.device, True, accessors=mapping.accessors
        )
        self._machine.memory.insert(mapping.block)

    def cuMemUnmap(self, address: int, nbytes: int) -> None:
        mapping = self._mapping(address, nbytes)
        if mapping.allocation is None or mapping.block is None:
            raise Refused(INVALID_VALUE, f"{address:#x} is not mapped")
        self._machine.memory.forget(mapping.block)
        _libc.mmap(address, nbytes, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED, -1, 0)
        mapping.allocation.drop()
        mapping.allocation = mapping.block = None

    def cuMemSetAccess(self, address: int, nbytes: int, access: Any, count: int) -> None:
        mapping = self._mapping(address, nbytes)
        for i in range(count):
            device = self._machine.device(access[i].location.id)
            own = mapping.allocation is not None and mapping.allocation.device is device
            if access[i].flags != _READ_AND_WRITE or mapping.allocation is None or not (own or self._machine.peers):
                raise Refused(INVALID_VALUE, f"{device.name} cannot access {address:#x}")
            mapping.accessors.add(device)

    def _new(self, allocation: Allocation) -> int:
        self._next += 1
        self._allocations[self._next] = allocation
        return self._next

    def _found(self, handle: int) -> Allocation:
        if handle not in self._allocations:
            raise Refused(INVALID_HANDLE, f"{handle} is not an allocation")
        return self._allocations[handle]

    def _mapping(self, address: int, nbytes: int) -> Mapping:
        mapping = self._mappings.get(address)
        if mapping is None or mapping.size != nbytes:
            raise Refused(INVALID_VALUE, f"{nbytes} bytes at {address:#x} are not reserved")
        return mapping
