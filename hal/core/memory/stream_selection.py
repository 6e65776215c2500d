"""Stream selection of a thread, for another thread that continues its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class StreamSelection:
    """The stream of a device that the calling thread has selected, and the pool that it allocates from."""

    __slots__ = ("_device", "_pool", "stream")

    def __init__(self, device: Device) -> None:
        self._device = device
        self.stream: Any = None
        """The backend's stream; None for the device's default stream."""
        self._pool = device.pool.streams.current.pool
        if (backend := device.stream_backend) is not None:
            self.stream = backend.switch_stream(None)
            backend.switch_stream(self.stream)

    @contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Select stream and pool for the calling thread, which has no selection."""
        backend, streams = self._device.stream_backend, self._device.pool.streams
        streams.current.pool = self._pool
        if backend is not None and self.stream is not None:
            backend.switch_stream(self.stream)
        try:
            yield
        finally:
            streams.current.pool = None
            if backend is not None and self.stream is not None:
                backend.switch_stream(None)
