"""Copies to the host in flight: delivered once, in order, with the error of a failed command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyopencl as cl
import pytest

from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl.discovery import OpenCLDevice
from polyhal.backends.opencl.error_mapping import DriverErrors
from polyhal.backends.opencl.events import OpenCLRead, PendingReads
from polyhal.hal.errors import BackendError, DeviceLostError, OutOfMemoryError
from polyhal.hal.testing.kit.contract_async import checks
from polyhal.hal.testing.kit.scope import Scope

_RUNNING = 1


class FakeEvent:
    """A driver's command with a status that the test sets."""

    def __init__(self, refuses: bool = False) -> None:
        self.command_execution_status = _RUNNING
        self.callback: Callable[[int], None] | None = None
        self._refuses = refuses

    def set_callback(self, kind: int, callback: Callable[[int], None]) -> None:
        if self._refuses:
            raise cl.RuntimeError(cl._cl._ErrorRecord("refused", cl.status_code.OUT_OF_RESOURCES, "set_callback"))
        self.callback = callback

    def end(self, status: int = 0) -> None:
        self.command_execution_status = status
        if self.callback is not None:
            self.callback(status)


class Reads:
    """Reads of one queue, and a log of their delivery."""

    def __init__(self, events: list[FakeEvent]) -> None:
        self.pending = PendingReads(DriverErrors("a device"))
        self.delivered: list[tuple[int, BaseException | None]] = []
        self.finished: list[int] = []
        self.reads = [self._add(number, event) for number, event in enumerate(events)]

    def _add(self, number: int, event: Any) -> OpenCLRead:
        runtime: Any = None
        read = OpenCLRead(runtime, event, lambda: self.finished.append(number))
        read.add_callback(lambda error: self.delivered.append((number, error)))
        self.pending.add(read)
        return read


def test_one_callback_of_the_driver_serves_many_reads() -> None:
    events = [FakeEvent() for _ in range(4)]
    reads = Reads(events)
    assert [e.callback is not None for e in events] == [True, False, False, False]
    for event in events[1:3]:
        event.end()
    assert reads.delivered == []
    events[0].end()
    assert reads.delivered == [(0, None), (1, None), (2, None)]
    assert events[3].callback is not None
    events[3].end()
    assert reads.finished == [0, 1, 2, 3]
    reads.pending.drain()


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (cl.status_code.OUT_OF_RESOURCES, OutOfMemoryError, "OUT_OF_RESOURCES"),
        (cl.status_code.DEVICE_NOT_AVAILABLE, DeviceLostError, "DEVICE_NOT_AVAILABLE"),
        (-9999, DeviceLostError, "status -9999"),
        (cl.status_code.INVALID_VALUE, BackendError, "INVALID_VALUE"),
    ],
)
def test_a_failed_command_is_delivered_as_its_typed_error(status: int, error: type[Exception], text: str) -> None:
    event = FakeEvent()
    reads = Reads([event])
    event.end(status)
    ((_, delivered),) = reads.delivered
    assert isinstance(delivered, error)
    assert text in str(delivered)
    assert reads.finished == []
    assert reads.reads[0].is_complete()
    with pytest.raises(error, match=text):
        reads.reads[0].wait()


def test_a_command_that_is_complete_needs_no_callback() -> None:
    """Oclgrind never runs the callback of a command that has already ended."""
    event = FakeEvent()
    event.end()
    reads = Reads([event])
    assert reads.delivered == [(0, None)]
    event.end()
    assert reads.delivered == [(0, None)]
    reads.pending.drain()


def test_a_driver_that_refuses_a_callback_fails_the_reads() -> None:
    reads = Reads([FakeEvent(refuses=True)])
    ((_, delivered),) = reads.delivered
    assert isinstance(delivered, OutOfMemoryError)
    reads.pending.drain()


def test_reads_go_through_pinned_memory_on_discrete_cards(found: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyhal.hal.device import Device

    backend = OpenCLBackend(found)
    monkeypatch.setattr(backend._memory, "_unified", False)
    for _, check in checks(Device.opened("discrete", backend), Scope()):
        check()
    pool = backend._memory._staging_pool()
    assert 0 < pool._idle <= 2**20, "staging memory was not reused"
