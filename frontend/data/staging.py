"""Copies of arrays to page-locked memory in chunks, by several threads where there are cores to spare.

One thread copies 5 GB/s, and a device's bus takes five times as much.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from polyhal.data.dataset import LazyRows

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_CHUNK = 1 << 21
"""Bytes that are staged at a time, so that the transfer starts early."""
_MOST_THREADS = 4


def staged(x: np.ndarray | LazyRows, memory: np.ndarray) -> Iterator[tuple[int, int]]:
    """Copy an array to the bytes `memory`. Yields the first byte and the end of each chunk, in order, when it is complete."""
    count, size = (x.shape[0], x.nbytes // max(x.shape[0], 1)) if isinstance(x, LazyRows) else (x.nbytes, 1)
    step = max(1, _CHUNK // max(size, 1))
    if isinstance(x, LazyRows):
        rows = memory.view(x.dtype).reshape(x.shape)
    else:
        source = np.ascontiguousarray(x).reshape(-1).view(np.uint8)

    def copy(begin: int) -> tuple[int, int]:
        end = min(begin + step, count)
        if isinstance(x, LazyRows):
            x.read(begin, end, rows[begin:end])
        else:
            np.copyto(memory[begin:end], source[begin:end])
        return begin * size, end * size

    begins = range(0, count if size else 0, step)
    threads = _threads(os.getpid()) if len(begins) > 1 else None
    if threads is None:
        yield from map(copy, begins)
        return
    futures = [threads.submit(copy, begin) for begin in begins]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
        for future in futures:
            if not future.cancelled():
                future.exception()  # no thread writes to the memory any more


@functools.lru_cache(maxsize=1)
def _threads(pid: int) -> ThreadPoolExecutor | None:
    """Return the threads of this process; None if it has one core or two. A forked child needs its own."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cores // 2, _MOST_THREADS)
    if count < 2:
        return None
    from concurrent.futures import ThreadPoolExecutor  # imports slowly

    return ThreadPoolExecutor(count, "polyhal-staging")
