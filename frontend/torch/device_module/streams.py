"""Streams and events of the device. PyTorch's interface for devices written in Python knows one stream: the current one."""

from __future__ import annotations

from typing import Any, NoReturn

from polyhal.hal.memory.events import DeviceEvent
from polyhal.torch.device import NAME, current
from polyhal.torch.device_module.devices import check_index

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


class TorchStream:
    """The stream that all work of a thread goes to. Further ones are not to be had from PyTorch."""

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        """Raise RuntimeError: `current_stream` gives the one there is."""
        raise RuntimeError(
            f"torch.{NAME} has one stream, torch.{NAME}.current_stream(): PyTorch's interface for devices written in Python "
            "knows no others. Polyhal's own programs have them: polyhal.Device.stream"
        )

    def synchronize(self) -> None:
        """Wait until all work is done."""
        current().synchronize()

    def query(self) -> bool:
        """Whether all work is done."""
        return current().record_event().query()

    def record_event(self, event: TorchEvent | None = None) -> TorchEvent:
        """An event after all work so far."""
        event = event or TorchEvent()
        event.record(self)
        return event

    def wait_event(self, event: TorchEvent) -> None:
        """Nothing has to wait: there is one stream, which runs in order."""

    def wait_stream(self, stream: TorchStream) -> None:
        """Nothing has to wait: there is one stream, which runs in order."""


class _OnlyStream(TorchStream):
    """The stream that there is."""

    def __init__(self) -> None:
        """Unlike others it can be made."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OnlyStream)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<torch.{NAME}.Stream, the only one>"


def current_stream(device: Any = None) -> TorchStream:
    """The stream that the thread's work goes to."""
    check_index(device)
    return _OnlyStream()


default_stream = current_stream


class StreamContext:
    """`with torch.polyhal.stream(torch.polyhal.current_stream()):`. Nothing changes."""

    def __init__(self, stream: TorchStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        """There is nothing to change."""

    def __exit__(self, *error: object) -> None:
        """There is nothing to go back to."""


def stream(stream: TorchStream | None) -> StreamContext:
    """A block whose work goes to `stream`, of which there is one."""
    return StreamContext(stream)


def set_stream(stream: TorchStream) -> None:
    """Do nothing: there is one stream."""


class TorchEvent:
    """A point in the work of the device. It does not measure time."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        """Raise RuntimeError for an event that is shared between processes."""
        if interprocess:
            raise RuntimeError(f"events of torch.{NAME} belong to one process")
        self._event: DeviceEvent | None = None

    def record(self, stream: TorchStream | None = None) -> None:
        """Move the event after all work so far."""
        self._event = current().record_event()

    def query(self) -> bool:
        """Whether all work before the event is done; True if it was not recorded."""
        return self._event is None or self._event.query()

    def synchronize(self) -> None:
        """Wait for all work before the event."""
        if self._event is not None:
            self._event.synchronize()

    def wait(self, stream: TorchStream | None = None) -> None:
        """Nothing has to wait: there is one stream, which runs in order."""

    def elapsed_time(self, end_event: TorchEvent) -> NoReturn:
        """Raise RuntimeError: drivers of several kinds do not tell when work was done."""
        raise RuntimeError(
            f"events of torch.{NAME} do not measure time: call torch.{NAME}.synchronize() and use time.perf_counter()"
        )


Event, Stream = TorchEvent, TorchStream
"""As `torch.polyhal` has them."""
