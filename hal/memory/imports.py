"""Host memory that belongs to others, which devices that share the host's memory use where it lies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from polyhal.hal.dtypes import ALL
from polyhal.hal.layout import ALIGNMENT
from polyhal.hal.memory.buffer import Buffer

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.pool import Pool
    from polyhal.hal.peer_memory import SupportsMemoryImport
    from polyhal.hal.protocol import ComputeBackend, Handle

_ALIGNMENT = ALIGNMENT * max(dtype.itemsize for dtype in ALL)
"""Bytes. Whether an element is aligned is computed from the start of its buffer."""


class HostImports:
    """The imports of one device, and those that nothing refers to any more, whose owners wait until the device is done."""

    def __init__(self, backend: ComputeBackend, importer: SupportsMemoryImport) -> None:
        """`importer` is the backend, too."""
        self._backend = backend
        self._importer = importer
        # Appended to by the garbage collector, in any thread: nothing else may happen there.
        self._retired: deque[tuple[Handle, Any]] = deque()

    def retire(self, handle: Handle, owner: Any) -> None:
        """Note a handle to be released; its owner lives until then."""
        self._retired.append((handle, owner))

    def synchronize(self) -> None:
        """Wait for the device, then release what was retired before."""
        count = len(self._retired)
        self._backend.synchronize()
        for _ in range(count):
            try:
                handle, _owner = self._retired.popleft()
            except IndexError:  # another thread was faster
                return
            self._backend.deallocate(handle)

    def add(self, address: int, nbytes: int) -> Handle | None:
        """A handle for memory at an address; None where the device would copy. First releases what was retired."""
        if self._retired:
            self.synchronize()
        return self._importer.import_memory(address, nbytes)


class ImportedBuffer(Buffer):
    """A buffer in memory of another owner, which lives as long as the buffer and the work on it."""

    __slots__ = ("_imports", "owner", "start")

    def __init__(self, handle: Handle, nbytes: int, pool: Pool, imports: HostImports, owner: Any, start: int) -> None:
        self._imports = imports
        self.owner = owner
        self.start = start
        """Bytes before the owner's memory, which nothing may touch: buffers begin where vectors of any dtype may begin."""
        super().__init__(handle, nbytes, pool, 0)

    def __del__(self) -> None:
        try:
            handle = self.handle
        except AttributeError:  # Ctrl-C, or the end of the program, has interrupted `__init__`
            return
        self._imports.retire(handle, self.owner)


def import_memory(device: Device, address: int, nbytes: int, owner: Any) -> ImportedBuffer | None:
    """A buffer over `nbytes` of writable host memory at `address`, which `owner` keeps alive; None where the device copies.

    The device sees what the host wrote before work was enqueued, and the host what work wrote after `Device.synchronize`. The
    owner is released by that, or by the next import, once nothing refers to the buffer.
    """
    imports = device.imports
    if imports is None or not nbytes:
        return None
    start = address % _ALIGNMENT
    handle = imports.add(address - start, nbytes + start)
    return None if handle is None else ImportedBuffer(handle, nbytes + start, device.pool, imports, owner, start)
