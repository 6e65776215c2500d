"""Streams and events of the device. PyTorch supports one queue per backend written in Python: all streams are names of it."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.events import DeviceEvent
from polyhal.torch.device import NAME, current
from polyhal.torch.device_module.devices import check_index

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "is_current_stream_capturing",
    "set_stream",
    "stream",
]


class TorchStream:
    """A name of the device's queue, in which the work of all streams runs in the order of the calls.

    So programs for several streams are correct and their work does not overlap; `polyhal.Device.stream` has streams that do.
    """

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        """Create a name of the queue. Raises ValueError for another device."""
        check_index(device)
        self.device = torch.device(NAME, 0)
        self.device_index = 0

    def synchronize(self) -> None:
        """Wait until all work is complete."""
        current().synchronize()

    def query(self) -> bool:
        """Return whether all work is complete."""
        return current().record_event().query()

    def record_event(self, event: TorchEvent | None = None) -> TorchEvent:
        """Record an event after all work so far."""
        event = event or TorchEvent()
        event.record(self)
        return event

    def wait_event(self, event: TorchEvent) -> None:
        """No-op: all streams run in the order of the calls."""

    def wait_stream(self, stream: TorchStream) -> None:
        """No-op: all streams run in the order of the calls."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchStream)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<torch.{NAME}.Stream>"


def current_stream(device: Any = None) -> TorchStream:
    """Return the stream of the thread's work."""
    check_index(device)
    return TorchStream()


default_stream = current_stream


def is_current_stream_capturing() -> bool:
    """Return whether this thread records a step: values of tensors cannot be read until the step runs."""
    return dispatch.thread.executor.recorder is not None


class StreamContext:
    """`with torch.polyhal.stream(torch.polyhal.current_stream()):`. No-op: all streams are one queue."""

    def __init__(self, stream: TorchStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        """No-op: all streams are one queue."""

    def __exit__(self, *error: object) -> None:
        """No-op: the queue was not changed."""


def stream(stream: TorchStream | None) -> StreamContext:
    """Run a block on `stream`."""
    return StreamContext(stream)


def set_stream(stream: TorchStream) -> None:
    """No-op: all streams are one queue."""


class TorchEvent:
    """A point in the work of the device, without a time stamp."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        """Create an event. Raises RuntimeError for an event shared between processes."""
        if interprocess:
            raise RuntimeError(f"events of torch.{NAME} belong to one process")
        self._event: DeviceEvent | None = None

    def record(self, stream: TorchStream | None = None) -> None:
        """Record the event after all work so far."""
        self._event = current().record_event()

    def query(self) -> bool:
        """Return whether all work before the event is complete; True if it was not recorded."""
        return self._event is None or self._event.query()

    def synchronize(self) -> None:
        """Wait until all work before the event is complete."""
        if self._event is not None:
            self._event.synchronize()

    def wait(self, stream: TorchStream | None = None) -> None:
        """No-op: all streams run in the order of the calls."""

    def elapsed_time(self, end_event: TorchEvent) -> NoReturn:
        """Raise RuntimeError: some drivers do not report when work was completed."""
        raise RuntimeError(
            f"events of torch.{NAME} do not measure time: call torch.{NAME}.synchronize() and use time.perf_counter()"
        )


Event, Stream = TorchEvent, TorchStream
"""Names of the classes in `torch.polyhal`."""
