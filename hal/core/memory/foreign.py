"""Device memory shared with other libraries of the process, in the order of the device's streams and theirs.

A block that has been shared is released, to its owner or to the pool, when all work that was enqueued before its last reference
is done on both sides. Other libraries do not order their streams after a release, nor does Polyhal.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.memory.buffer import Buffer, SubBuffer
from polyhal.hal.core.memory.imports import IMPORT_ALIGNMENT, ImportedBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from polyhal.hal.core.memory.buffer import BlockOwner
    from polyhal.hal.device import Device
    from polyhal.hal.peer_memory import SupportsForeignMemory
    from polyhal.hal.protocol import ComputeBackend, Event, Handle

    _Release = tuple[Callable[..., None], tuple[Any, ...]]
    """A function that releases memory, and its arguments."""


class ForeignMemory:
    """The shared memory of one device, including unreferenced blocks that work may still use."""

    def __init__(self, backend: ComputeBackend, driver: SupportsForeignMemory) -> None:
        """`driver` is the same object as `backend`, typed for its streams."""
        self.driver = driver
        self.space = driver.memory_space()
        self._backend = backend
        # The garbage collector appends from any thread; it must not do anything else.
        self._retired: deque[_Release] = deque()
        self._leaving: deque[tuple[Event, list[_Release]]] = deque()
        """Releases, each with the event after the last work on the memory, in the order of the events."""
        self._lock = threading.RLock()

    def retire(self, handle: Handle, owner: Any) -> None:
        """Schedule an imported handle for release; its owner lives until then."""
        self._retired.append((self._dismiss, (handle, owner)))

    def retire_block(self, home: BlockOwner, number: int, handle: Handle, size: int) -> None:
        """Schedule the return of a block to its pool."""
        self._retired.append((home.give, (number, handle, size)))

    def collect(self) -> None:
        """Release the retired memory that no work uses any more. Does not block."""
        if not (self._retired or self._leaving):
            return
        with self._lock:
            self._mark()
            while self._leaving and self._leaving[0][0].is_complete():
                _release_all(self._leaving.popleft()[1])

    def synchronize(self) -> None:
        """Wait for the device, and for the default stream if memory is retired. Then release all retired memory."""
        self._backend.synchronize()
        with self._lock:
            self._mark()
            while self._leaving:
                event, releases = self._leaving.popleft()
                event.wait()
                _release_all(releases)

    def add(self, address: int, nbytes: int) -> Handle:
        """Return a handle for memory of another owner. First releases retired memory."""
        self.collect()
        return self.driver.import_device_memory(address, nbytes)

    def lend(self, buffer: Buffer) -> None:
        """Let other libraries use the memory of a buffer: when unreferenced, it stays until their work is done, too."""
        self.collect()
        while isinstance(buffer, SubBuffer):
            buffer = buffer.whole
        if not isinstance(buffer, ImportedBuffer) and not isinstance(buffer.pool, _Lent):
            buffer.pool = _Lent(self, buffer.pool)

    def _dismiss(self, handle: Handle, _owner: Any) -> None:
        self._backend.deallocate(handle)

    def _mark(self) -> None:
        """Record an event after all work on the memory that is retired so far."""
        if count := len(self._retired):
            releases = [self._retired.popleft() for _ in range(count)]
            self._leaving.append((self.driver.mark_everything(), releases))


class _Lent:
    """Receiver of a block that other libraries may still use: returns it to the pool after their work."""

    def __init__(self, foreign: ForeignMemory, home: BlockOwner) -> None:
        self._foreign = foreign
        self._home = home

    def give(self, number: int, handle: Handle, size: int) -> None:
        """Schedule the return of the block."""
        self._foreign.retire_block(self._home, number, handle, size)


def _release_all(releases: list[_Release]) -> None:
    for release, arguments in releases:
        release(*arguments)


def import_device_memory(
    device: Device, foreign: ForeignMemory, address: int, nbytes: int, owner: Any
) -> ImportedBuffer:
    """Return a buffer over `nbytes` > 0 of a device's memory at `address`, owned by `owner`.

    Once the buffer is unreferenced and the work on it is done, `synchronize` or the next sharing of memory releases the owner.
    """
    start = address % IMPORT_ALIGNMENT
    handle = foreign.add(address - start, nbytes + start)
    return ImportedBuffer(handle, nbytes + start, device.pool, foreign, owner, start)
