# ruff: noqa: N802 - the names are those of the library
"""Memory of emulated devices: host memory by its own addresses, and the driver's functions for it."""

from __future__ import annotations

import bisect
import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from emulated_statuses import ILLEGAL_ADDRESS, INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, Refused

from polyhal.backends.common.cuda_driver import ffi

if TYPE_CHECKING:
    from emulated_machine import EmulatedContext, EmulatedDevice, Machine

_ALIGNMENT = 512
_GRANULARITY = 2 << 20
"""Bytes by which a pool grows."""
_FRESH, _RELEASED = 0xFF, 0xDD
"""Bytes of memory before it is written, a NaN in every floating-point dtype, and after its release."""
_GUARD, _GUARDED = 0xA5, 1024
"""Bytes before and after each block, and how many: kernels must not write there."""
_RELEASE_THRESHOLD = 4
"""CU_MEMPOOL_ATTR_RELEASE_THRESHOLD."""
_DEVICE_ORDINAL = 9
"""CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL."""
_READ_AND_WRITE = 3
"""CU_MEM_ACCESS_FLAGS_PROT_READWRITE."""


@dataclass(eq=False)
class Block:
    """An allocation of a device, or pinned memory of the host."""

    address: int
    size: int
    bytes: np.ndarray
    guards: tuple[np.ndarray, np.ndarray]
    device: EmulatedDevice | None
    """Owner; None for pinned memory."""
    allocated: bool = False
    """True once the stream has reached the allocation."""
    releasing: bool = False
    """True from the call that releases the block."""
    accessors: set[EmulatedDevice] | None = None
    """Devices that may access mapped virtual memory; None for the owner and the accessors of its pool."""


class AddressSpace:
    """Blocks by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, Block] = {}
        self.violations: list[str] = []
        """Wrong accesses that work of streams has made, which a card may or may not notice."""

    def add(self, size: int, device: EmulatedDevice | None) -> Block:
        """Return a new block, with bytes that are not zero."""
        array = np.full(_GUARDED + _ALIGNMENT + size + _GUARDED, _FRESH, np.uint8)
        start = _GUARDED + -(array.ctypes.data + _GUARDED) % _ALIGNMENT
        end = start + size
        guards = array[start - _GUARDED : start], array[end : end + _GUARDED]
        for guard in guards:
            guard[:] = _GUARD
        block = Block(array.ctypes.data + start, size, array[start:end], guards, device)
        self.insert(block)
        return block

    def insert(self, block: Block) -> None:
        """Add a block."""
        bisect.insort(self._starts, block.address)
        self._blocks[block.address] = block

    def forget(self, block: Block) -> None:
        """Remove a block without changing its bytes."""
        self._starts.remove(block.address)
        del self._blocks[block.address]

    def overrun(self) -> list[str]:
        """Return a text for each block whose surroundings were overwritten."""
        return [text for block in self._blocks.values() if (text := _overrun(block))]

    def remove(self, block: Block) -> None:
        """Remove a block, and overwrite it for readers that still have its address."""
        if text := _overrun(block):
            self.violations.append(text)
        block.bytes[:] = _RELEASED
        self.forget(block)

    def find(self, address: int, nbytes: int = 0) -> Block | None:
        """Return the block that contains a range of bytes; None without one."""
        place = bisect.bisect_right(self._starts, address) - 1
        block = self._blocks[self._starts[place]] if place >= 0 else None
        return block if block is not None and address + nbytes <= block.address + block.size else None

    def blocks(self, device: EmulatedDevice | None) -> list[Block]:
        """Return the blocks of a device, or the pinned ones."""
        return [b for b in self._blocks.values() if b.device is device]

    def check(self, context: EmulatedContext, address: int, nbytes: int, user: str) -> None:
        """Raise Refused unless work of a context may access a range of bytes now."""
        block = self.find(address, nbytes)
        if block is None:
            raise Refused(ILLEGAL_ADDRESS, f"{user} accesses {nbytes} bytes at {address:#x}, which are not allocated")
        if not block.allocated:
            raise Refused(
                ILLEGAL_ADDRESS, f"{user} accesses {address:#x} before the stream of its allocation gets there"
            )
        if block.device is None:
            return
        accessors = block.accessors
        if accessors is None:
            accessors = block.device.pool.accessors | {block.device}
        if context.device not in accessors:
            problem = f"{user} on {context.device.name} accesses {address:#x} of {block.device.name} without permission"
            raise Refused(ILLEGAL_ADDRESS, problem)


class Pool:
    """Accounts of a device's memory: a pool keeps released bytes, which other users of the device then lack."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.reserved = 0
        self.threshold = 0
        self.accessors: set[EmulatedDevice] = set()
        """Peers that may access the memory."""

    def take(self, size: int) -> bool:
        """Count an allocation. Returns whether it fits."""
        needed = self.used + size
        if needed > self.capacity:
            return False
        self.used = needed
        if needed > self.reserved:
            self.reserved = min(self.capacity, -(-needed // _GRANULARITY) * _GRANULARITY)
        return True

    def trim(self, kept: int) -> None:
        """Release all memory beyond `kept` that is not in use."""
        self.reserved = min(self.reserved, max(self.used, kept))

    def synchronized(self) -> None:
        """Release what exceeds the threshold, as the driver does when the host waits."""
        if self.reserved > self.threshold:
            self.trim(self.threshold)


def _overrun(block: Block) -> str:
    """Return the text about bytes around a block that were overwritten; empty if they were not."""
    places = [np.flatnonzero(guard != _GUARD) for guard in block.guards]
    before, after = (int(p[0]) if p.size else None for p in places)
    if before is not None:
        return f"a kernel wrote {_GUARDED - before} bytes before an allocation of {block.size}"
    return f"a kernel wrote at byte {block.size + after} of an allocation of {block.size}" if after is not None else ""


def _rounded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class MemoryFunctions:
    """The driver's functions for memory."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        pool = self._machine.current().device.pool
        free[0], total[0] = pool.capacity - pool.reserved, pool.capacity

    def cuPointerGetAttribute(self, value: Any, attribute: int, address: int) -> None:
        block = self._machine.memory.find(address)
        if block is None or block.device is None or attribute != _DEVICE_ORDINAL:
            raise Refused(INVALID_VALUE, f"attribute {attribute} of {address:#x} is not known")
        ffi.cast("int *", value)[0] = block.device.ordinal

    def cuMemAllocAsync(self, address: Any, nbytes: int, stream: Any) -> None:
        queue = self._machine.stream(stream)
        device, size = queue.context.device, _rounded(nbytes)
        if nbytes == 0:
            raise Refused(INVALID_VALUE, "no bytes to allocate")
        if not device.pool.take(size):
            queue.finish()  # releases that precede the allocation in its stream
            if not device.pool.take(size):
                raise Refused(OUT_OF_MEMORY, f"{nbytes} bytes, {device.pool.used} of {device.pool.capacity} in use")
        block = self._machine.memory.add(nbytes, device)

        def allocate() -> None:
            block.allocated = True

        queue.add(allocate)
        address[0] = block.address

    def cuMemFreeAsync(self, address: int, stream: Any) -> None:
        queue = self._machine.stream(stream)
        block = self._machine.memory.find(address)
        if block is None or block.address != address or block.releasing or block.device is None:
            raise Refused(INVALID_VALUE, f"{address:#x} is not an allocation, or was released before")
        block.releasing = True
        device = block.device

        def release() -> None:
            if not block.allocated:
                raise Refused(
                    ILLEGAL_ADDRESS, f"{address:#x} is released before the stream of its allocation gets there"
                )
            self._machine.memory.remove(block)
            device.pool.used -= _rounded(block.size)

        queue.add(release)

    def cuDeviceGetDefaultMemPool(self, pool: Any, device: int) -> None:
        pool[0] = self._machine.device(device).pool_handle

    def cuMemPoolSetAttribute(self, pool: Any, attribute: int, value: Any) -> None:
        device: EmulatedDevice = self._machine.handles.get("CUmemoryPool", pool, INVALID_VALUE)
        if attribute == _RELEASE_THRESHOLD:
            device.pool.threshold = int(ffi.cast("unsigned long long *", value)[0])
        elif attribute not in (1, 2, 3):  # how released memory may be reused: here only in the order of a stream
            raise Refused(INVALID_VALUE, f"attribute {attribute} of a pool cannot be set")

    def cuMemPoolTrimTo(self, pool: Any, kept: int) -> None:
        device: EmulatedDevice = self._machine.handles.get("CUmemoryPool", pool, INVALID_VALUE)
        device.pool.trim(kept)

    def cuMemPoolSetAccess(self, pool: Any, access: Any, count: int) -> None:
        device: EmulatedDevice = self._machine.handles.get("CUmemoryPool", pool, INVALID_VALUE)
        for i in range(count):
            if access[i].location.type != 1:
                raise Refused(INVALID_VALUE, f"location {access[i].location.type} is not a device")
            other = self._machine.device(access[i].location.id)
            if other is not device and not self._machine.peers:
                raise Refused(INVALID_DEVICE, f"{other.name} cannot access {device.name}")
            if access[i].flags == _READ_AND_WRITE:
                device.pool.accessors.add(other)
            else:
                device.pool.accessors.discard(other)

    def cuMemHostAlloc(self, address: Any, nbytes: int, flags: int) -> None:
        self._machine.current()
        if nbytes == 0 or flags & ~7:
            raise Refused(INVALID_VALUE, f"{nbytes} bytes with flags {flags}")
        block = self._machine.memory.add(nbytes, None)
        block.allocated = True
        address[0] = ffi.cast("void *", block.address)

    def cuMemFreeHost(self, address: Any) -> None:
        self._machine.current()
        block = self._machine.memory.find(int(ffi.cast("uintptr_t", address)))
        if block is None or block.device is not None or block.address != int(ffi.cast("uintptr_t", address)):
            raise Refused(INVALID_VALUE, f"{address} is not pinned memory")
        self._machine.memory.remove(block)

    def cuMemcpyHtoDAsync_v2(self, target: int, source: Any, nbytes: int, stream: Any) -> None:
        self._copy(target, int(ffi.cast("uintptr_t", source)), nbytes, stream, (target,))

    def cuMemcpyDtoHAsync_v2(self, target: Any, source: int, nbytes: int, stream: Any) -> None:
        self._copy(int(ffi.cast("uintptr_t", target)), source, nbytes, stream, (source,))

    def cuMemcpyDtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        self._copy(target, source, nbytes, stream, (target, source))

    def _copy(self, target: int, source: int, nbytes: int, stream: Any, on_device: tuple[int, ...]) -> None:
        """Enqueue a copy. Memory of the host is read or written when it runs, which the driver may do with any memory."""
        queue = self._machine.stream(stream)
        memory = self._machine.memory
        for address in on_device:
            self._check_range(address, nbytes)
        pinned = [(a, memory.find(a, nbytes)) for a in (target, source) if a not in on_device]

        def copy() -> None:
            for address in on_device:
                memory.check(queue.context, address, nbytes, "a copy")
            for address, block in pinned:
                if block is not None and memory.find(address) is not block:
                    raise Refused(ILLEGAL_ADDRESS, f"the pinned memory of a copy, {address:#x}, was released before it")
            ctypes.memmove(target, source, nbytes)

        queue.add(copy)

    def cuMemsetD8Async(self, target: int, value: int, nbytes: int, stream: Any) -> None:
        queue = self._machine.stream(stream)
        self._check_range(target, nbytes)

        def fill() -> None:
            self._machine.memory.check(queue.context, target, nbytes, "a fill")
            ctypes.memset(target, value, nbytes)

        queue.add(fill)

    def cuMemcpyPeerAsync(
        self, target: int, target_context: Any, source: int, source_context: Any, nbytes: int, stream: Any
    ) -> None:
        queue = self._machine.stream(stream)
        ends = ((target, target_context), (source, source_context))
        contexts = [self._machine.context(c) for _, c in ends]
        for (address, _), context in zip(ends, contexts, strict=True):
            if self._check_range(address, nbytes).device is not context.device:
                raise Refused(INVALID_VALUE, f"{address:#x} is not memory of {context.device.name}")

        def copy() -> None:
            for (address, _), context in zip(ends, contexts, strict=True):
                self._machine.memory.check(context, address, nbytes, "a copy between devices")
            ctypes.memmove(target, source, nbytes)

        queue.add(copy)

    def _check_range(self, address: int, nbytes: int) -> Block:
        """Return the block of an address. Raises Refused unless all bytes are in it."""
        block = self._machine.memory.find(address, nbytes)
        if block is None or block.device is None:
            raise Refused(INVALID_VALUE, f"{nbytes} bytes at {address:#x} are not in an allocation")
        return block
