"""Suppress pyopencl's warnings about non-empty compiler output, also while several threads build programs.

`warnings.catch_warnings` is not thread-safe: a thread that leaves it restores the earlier filters for all others.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from types import TracebackType

import pyopencl as cl


class _Ignored:
    """A context in which any number of threads build programs. The first changes the filters, the last restores them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filters = contextlib.ExitStack()
        self._threads = 0

    def __enter__(self) -> None:
        with self._lock:
            self._threads += 1
            if self._threads == 1:
                self._filters.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore", cl.CompilerWarning)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads:
                self._filters.close()


ignored = _Ignored()
