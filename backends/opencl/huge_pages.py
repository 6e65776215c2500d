"""Huge pages for large blocks of memory on CPU devices, where Linux provides them on request (madvise).

A kernel that reads scattered rows of a table of 50 MB otherwise misses the TLB for nearly every row,
and the first use of a block faults once per 4 KB. The call is a hint: a system that ignores it behaves as before.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

_PAGE = 1 << 21
"""Bytes of a huge page on x86-64, and on Arm with base pages of 4 KB."""
_SMALLEST = 2 * _PAGE - 1
"""Bytes of a block that has a whole huge page wherever it begins."""
_MADV_HUGEPAGE = 14

Advise = Callable[[int, int], None]
"""Function of the address and the length of whole huge pages."""


@functools.cache
def linux_advice() -> Advise | None:
    """Return the system call; None on systems without it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None

    def advise(address: int, length: int) -> None:
        madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), _MADV_HUGEPAGE)

    return advise


def advise_huge_pages(queue: cl.CommandQueue, buffer: cl.Buffer, nbytes: int, advise: Advise | None) -> None:
    """Request huge pages in a new buffer of a device whose memory is the host's. Waits for the queue."""
    if advise is None or nbytes < _SMALLEST:
        return
    access: Any = cl.map_flags.READ | cl.map_flags.WRITE
    memory: Any
    memory, _ = cl.enqueue_map_buffer(queue, buffer, access, 0, (nbytes,), np.dtype(np.uint8), is_blocking=True)
    first = memory.__array_interface__["data"][0]
    begin, end = -(-first // _PAGE) * _PAGE, (first + nbytes) // _PAGE * _PAGE
    advise(begin, end - begin)
    memory.base.release(queue)
