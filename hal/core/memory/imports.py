"""Import of host memory of other owners, without a copy, on devices that share the host's memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.dtypes import ALL
from polyhal.hal.layout import ALIGNMENT

if TYPE_CHECKING:
    from polyhal.hal.core.memory.foreign import ForeignMemory
    from polyhal.hal.core.memory.pool import Pool
    from polyhal.hal.device import Device
    from polyhal.hal.peer_memory import SupportsMemoryImport
    from polyhal.hal.protocol import ComputeBackend, Handle

IMPORT_ALIGNMENT = ALIGNMENT * max(dtype.itemsize for dtype in ALL)
"""Alignment of imported buffers in bytes: the alignment of elements is computed from the start of the buffer."""


class HostImports:
    """Imports of one device, including unreferenced ones, whose owners are kept alive until the device is done."""

    def __init__(self, backend: ComputeBackend, importer: SupportsMemoryImport) -> None:
        """`importer` is the same object as `backend`, typed as an importer."""
        self._backend = backend
        self._importer = importer
        # The garbage collector appends from any thread; it must not do anything else.
        self._retired: deque[tuple[Handle, Any]] = deque()

    def retire(self, handle: Handle, owner: Any) -> None:
        """Schedule a handle for release; its owner lives until then."""
        self._retired.append((handle, owner))

    def synchronize(self) -> None:
        """Wait for the device, then release the handles retired before."""
        count = len(self._retired)
        self._backend.synchronize()
        for _ in range(count):
            try:
                handle, _owner = self._retired.popleft()
            except IndexError:  # another thread was faster
                return
            self._backend.deallocate(handle)

    def add(self, address: int, nbytes: int) -> Handle | None:
        """Return a handle for memory at an address; None if the device would copy. First releases retired handles."""
        if self._retired:
            self.synchronize()
        return self._importer.import_memory(address, nbytes)


class ImportedBuffer(Buffer):
    """A buffer in memory of another owner. The owner is kept alive as long as the buffer and the work on it."""

    __slots__ = ("_imports", "owner", "start")

    def __init__(
        self, handle: Handle, nbytes: int, pool: Pool, imports: HostImports | ForeignMemory, owner: Any, start: int
    ) -> None:
        self._imports = imports
        self.owner = owner
        self.start = start
        """Bytes before the owner's memory, which must not be accessed: buffers start at the alignment of any dtype's
        vectors."""
        super().__init__(handle, nbytes, pool, 0)

    def __del__(self) -> None:
        try:
            handle = self.handle
        except AttributeError:  # Ctrl-C, or the end of the program, has interrupted `__init__`
            return
        self._imports.retire(handle, self.owner)


def import_memory(device: Device, address: int, nbytes: int, owner: Any) -> ImportedBuffer | None:
    """Return a buffer over `nbytes` of writable host memory at `address`, owned by `owner`; None if the device would copy.

    Host writes before work is enqueued are visible to the device, and device writes are visible to the host after
    `Device.synchronize`. Once the buffer is unreferenced, `synchronize` or the next import releases the owner.
    """
    imports = device.imports
    if imports is None or not nbytes:
        return None
    start = address % IMPORT_ALIGNMENT
    handle = imports.add(address - start, nbytes + start)
    return None if handle is None else ImportedBuffer(handle, nbytes + start, device.pool, imports, owner, start)
