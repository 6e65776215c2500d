"""The lifetime of a piece of device memory: it goes back to its pool when the last tensor or view lets go of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhal.hal.memory.pool import Pool


class Buffer:
    """Owner of one handle. `version` counts in-place changes, so that autograd notices a saved value that was changed."""

    __slots__ = ("__weakref__", "handle", "nbytes", "number", "pool", "version")

    def __init__(self, handle: Any, nbytes: int, pool: Pool, number: int) -> None:
        self.handle = handle
        self.nbytes = nbytes
        self.number = number
        """Which allocation of the pool it is."""
        self.pool = pool
        self.version = 0

    def __del__(self) -> None:
        if self.handle is not None:
            self.pool.give(self.number, self.handle, self.nbytes)


class Part(Buffer):
    """A tensor's share of a larger buffer, which stays as long as this is in use. It takes no memory of its own."""

    __slots__ = ("whole",)

    def __init__(self, whole: Buffer) -> None:
        super().__init__(whole.handle, 0, whole.pool, whole.number)
        self.whole = whole

    def __del__(self) -> None:
        """The memory goes back when the whole does."""
