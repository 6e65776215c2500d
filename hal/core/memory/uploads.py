"""Asynchronous uploads: copies of host memory to a device that the program does not wait for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from polyhal.hal.protocol import Event, Handle, SupportsPinnedMemory

_MOST_PENDING = 64 * 2**20
"""Maximum bytes of host memory kept alive by copies in flight; a larger copy is the only one in flight."""


class _Upload(NamedTuple):
    """A copy in flight."""

    event: Event
    source: memoryview
    done: Callable[[], object] | None


class PendingUploads:
    """Copies to a device that may be in flight, oldest first."""

    def __init__(self, backend: SupportsPinnedMemory) -> None:
        self._backend = backend
        self._pending: deque[_Upload] = deque()
        self._nbytes = 0
        self._lock = threading.Lock()

    def start(
        self, source: memoryview, handle: Handle, offset: int = 0, done: Callable[[], object] | None = None
    ) -> None:
        """Start to copy bytes that the caller does not change until the copy is complete. Waits if too much is in flight.

        The bytes are kept alive until then. `done` is called when they are free, during one of the next uploads.
        """
        with self._lock:
            while self._pending and (
                self._nbytes + source.nbytes > _MOST_PENDING or self._pending[0].event.is_complete()
            ):
                oldest = self._pending.popleft()
                self._nbytes -= oldest.source.nbytes
                try:
                    oldest.event.wait()
                finally:
                    if oldest.done is not None:
                        oldest.done()
            event = self._backend.copy_to_device_async(source, handle, offset)
            self._pending.append(_Upload(event, source, done))
            self._nbytes += source.nbytes
