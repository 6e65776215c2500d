"""Ownership of a block of device memory, which returns to its pool when the last tensor or view releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from polyhal.hal.protocol import Handle


TAKEN, SHARED = 1, 2
"""Owners of a gradient's memory: the `.grad` of a leaf (TAKEN), which may be a part of it, or several owners (SHARED)."""


class BlockOwner(Protocol):
    """Receiver of unreferenced blocks."""

    def give(self, number: int, handle: Handle, size: int, /) -> None:
        """Take a block back. Called by any thread and the garbage collector."""


class Buffer:
    """Owner of one handle. `version` counts writes in place, so that autograd detects changes of saved values."""

    __slots__ = (
        "__weakref__",
        "detached",
        "handle",
        "history",
        "hold",
        "nbytes",
        "number",
        "pool",
        "reshapes",
        "savers",
        "version",
        "views",
    )

    detached: Any
    """Histories of tensors that were detached and then written on the tape; unset until the first such write."""
    history: Any
    """History of writes in place for the tape; unset until the first write, because most buffers have none."""
    hold: int
    """TAKEN or SHARED (see `frontend/tape/ownership.py`); unset while a single op or edge of the tape owns it."""
    reshapes: set[int]
    """Versions that only changed the shape of a tensor, not its elements; unset until there is one."""
    savers: tuple[Any, ...]
    """Nodes that saved a result in this memory and copy it before a write; unset until there is one."""
    views: Any
    """Tensors over this memory that are not on the tape; unset until there is one."""

    def __init__(self, handle: Handle, nbytes: int, pool: BlockOwner, number: int) -> None:
        self.nbytes = nbytes
        self.number = number
        """Number of the allocation in the pool."""
        self.pool = pool
        self.version = 0
        self.handle = handle  # last, so that every object with a handle can release it

    def __del__(self) -> None:
        try:
            handle = self.handle
        except AttributeError:  # Ctrl-C, or the end of the program, has interrupted `__init__`
            return
        if handle is not None:
            self.pool.give(self.number, handle, self.nbytes)


class SubBuffer(Buffer):
    """A tensor's part of a larger buffer, which it keeps alive. It has no memory of its own."""

    __slots__ = ("whole",)

    def __init__(self, whole: Buffer) -> None:
        super().__init__(whole.handle, 0, whole.pool, whole.number)
        self.whole = whole

    def __del__(self) -> None:
        """No-op: the memory returns to the pool with the whole buffer."""
