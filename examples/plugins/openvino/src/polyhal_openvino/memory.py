"""Device memory: bytes of the host, which programs use without a copy, and the number of times they were written."""

from __future__ import annotations

import numpy as np

from polyhal.backends.common.reference.arrays import view_memory
from polyhal.hal.layout import Ref

_ALIGNMENT = 64
"""Bytes: a line of the cache, and the widest vector."""


class Memory:
    """An allocation. `writes` changes whenever some of its bytes may have changed."""

    __slots__ = ("data", "nbytes", "writes")

    def __init__(self, nbytes: int) -> None:
        space = np.empty(nbytes + _ALIGNMENT - 1, np.uint8)
        start = -space.ctypes.data % _ALIGNMENT
        self.data = space[start : start + nbytes]
        self.nbytes = nbytes
        self.writes = 0


def view(ref: Ref, *, changed: bool = False) -> np.ndarray:
    """Return the elements of a reference with any strides; `changed` says that the caller writes some of them."""
    memory: Memory = ref.handle
    memory.writes += changed
    return view_memory(ref.spec, memory.data, ref.offset)
