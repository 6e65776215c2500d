"""Streams and events of the device. PyTorch supports a single stream per backend written in Python: the current one."""

from __future__ import annotations

from typing import Any, NoReturn

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
    """The stream of all work of a thread. PyTorch cannot create further ones."""

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        """Raise RuntimeError: `current_stream` returns the only stream."""
        raise RuntimeError(
            f"torch.{NAME} has one stream, torch.{NAME}.current_stream(): PyTorch's interface for devices written in Python "
            "does not support others. Programs of Polyhal have them: polyhal.Device.stream"
        )

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
        """No-op: there is one stream, which runs in order."""

    def wait_stream(self, stream: TorchStream) -> None:
        """No-op: there is one stream, which runs in order."""


class _OnlyStream(TorchStream):
    """The only stream."""

    def __init__(self) -> None:
        """Create the only stream, without the error of the base class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OnlyStream)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<torch.{NAME}.Stream, the only one>"


def current_stream(device: Any = None) -> TorchStream:
    """Return the stream of the thread's work."""
    check_index(device)
    return _OnlyStream()


default_stream = current_stream


def is_current_stream_capturing() -> bool:
    """Return whether this thread records a step: values of tensors cannot be read until the step runs."""
    return dispatch.thread.executor.recorder is not None


class StreamContext:
    """`with torch.polyhal.stream(torch.polyhal.current_stream()):`. No-op: there is one stream."""

    def __init__(self, stream: TorchStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        """No-op: there is one stream."""

    def __exit__(self, *error: object) -> None:
        """No-op: the stream was not changed."""


def stream(stream: TorchStream | None) -> StreamContext:
    """Run a block on `stream`, the only one."""
    return StreamContext(stream)


def set_stream(stream: TorchStream) -> None:
    """No-op: there is one stream."""


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
        """No-op: there is one stream, which runs in order."""

    def elapsed_time(self, end_event: TorchEvent) -> NoReturn:
        """Raise RuntimeError: some drivers do not report when work was completed."""
        raise RuntimeError(
            f"events of torch.{NAME} do not measure time: call torch.{NAME}.synchronize() and use time.perf_counter()"
        )


Event, Stream = TorchEvent, TorchStream
"""Names of the classes in `torch.polyhal`."""
