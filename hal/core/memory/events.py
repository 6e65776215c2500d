"""Events: points in a device's work that a program can query and wait for, and that order other streams.

    done = device.record_event()
    ...
    if done.query():  # or done.synchronize()

A device without streams also has events if it supports asynchronous reads: the event is then a copy of a few bytes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.protocol import Event

if TYPE_CHECKING:
    from polyhal.hal.core.memory.streams import Stream
    from polyhal.hal.device import Device

_FENCE_BYTES = 4


class DeviceEvent:
    """A point in a device's work. Returned by `Device.record_event` and `Stream.record_event`."""

    def __init__(self, device: Device, event: Event | None) -> None:
        """Wrap an event of the backend; None if the work is done."""
        self.device = device
        self._event = event

    def query(self) -> bool:
        """Return whether all work before the event is done, without blocking."""
        return self._event is None or self._event.is_complete()

    def synchronize(self) -> None:
        """Block until all work before the event is done. Raises the typed error of work that failed."""
        if self._event is not None:
            self._event.wait()

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work on a stream, by default the thread's, wait for the event. Does not block.

        An event of another device blocks the host, because devices do not wait for each other.
        """
        if self._event is None:
            return
        device = self.device if stream is None else stream.device
        if device is not self.device:
            self.synchronize()
        elif device.stream_backend is not None:
            with contextlib.nullcontext() if stream is None else stream.selected():
                device.stream_backend.wait_for(self._event)

    def __repr__(self) -> str:
        return f"<event on {self.device}, {'done' if self.query() else 'pending'}>"


def record_event(device: Device) -> DeviceEvent:
    """Return an event after everything enqueued on the thread's stream. Submits without waiting if the device supports it."""
    if device.stream_backend is not None:
        return DeviceEvent(device, device.stream_backend.mark())
    if (backend := device.reading_backend) is not None:
        fence = device.pool.take(bucket(_FENCE_BYTES))
        return DeviceEvent(device, backend.copy_from_device_async(fence.handle, 0, memoryview(bytearray(_FENCE_BYTES))))
    device.synchronize()
    return DeviceEvent(device, None)
