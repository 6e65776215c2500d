"""Streams and events of the CUDA backend, on a device that works only when the host waits."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation

from polyhal.hal import dtypes
from polyhal.hal.errors import OutOfMemoryError
from polyhal.hal.protocol import Event


class HostEvent:
    """An event of another backend."""

    def __init__(self, action: Any) -> None:
        self._action = action

    def wait(self) -> None:
        self._action()

    def is_complete(self) -> bool:
        return False


def test_a_stream_that_waits_for_another_sees_its_work(emulation: Emulation) -> None:
    backend, harness = emulation.backend, emulation.harness
    x, y = harness.upload(np.zeros(100, np.float32)), harness.upload(np.zeros(100, np.float32))
    backend.synchronize()
    second = backend.open_stream()
    backend.switch_stream(second)
    backend.fill(3.0, x)
    done = backend.mark()
    backend.switch_stream(None)
    backend.wait_for(done)
    backend.copy(x, y)
    assert (harness.download(y) == 3).all()
    assert done.is_complete()


def test_without_waiting_the_work_of_another_stream_is_not_seen(emulation: Emulation) -> None:
    """Lazy devices are only worth something if a missing wait shows."""
    backend, harness = emulation.backend, emulation.harness
    x, y = harness.upload(np.zeros(100, np.float32)), harness.upload(np.zeros(100, np.float32))
    backend.synchronize()
    backend.switch_stream(backend.open_stream())
    backend.fill(3.0, x)
    backend.switch_stream(None)
    backend.copy(x, y)
    assert (harness.download(y) == 0).all()
    backend.synchronize()
    assert (harness.download(x) == 3).all()


def test_an_event_that_is_polled_completes(emulation: Emulation) -> None:
    backend = emulation.backend
    out = emulation.harness.empty(dtypes.float32, (10,))
    backend.fill(1.0, out)
    done = backend.mark()
    polls = 0
    while not done.is_complete():
        polls += 1
        assert polls < 100
    assert polls > 0
    done.wait()


def test_an_event_is_one_point_although_the_stream_goes_on(emulation: Emulation) -> None:
    backend = emulation.backend
    x = emulation.harness.upload(np.zeros(10, np.float32))
    first = backend.mark()
    backend.fill(1.0, x)
    second = backend.mark()
    first.wait()
    assert first.is_complete()
    assert not second.is_complete()


def test_each_thread_selects_its_stream(emulation: Emulation) -> None:
    backend = emulation.backend
    second = backend.open_stream()
    seen: list[Any] = []

    def other() -> None:
        seen.append(backend.switch_stream(None))

    assert backend.switch_stream(second) is None
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [None]
    assert backend.switch_stream(None) is second


def test_the_host_waits_for_events_of_other_backends_once_before_the_next_command(emulation: Emulation) -> None:
    backend, harness = emulation.backend, emulation.harness
    x = harness.upload(np.zeros(10, np.float32))
    waited: list[int] = []
    event: Event = HostEvent(lambda: waited.append(1))
    backend.wait_for(event)
    assert waited == []
    backend.fill(1.0, x)
    backend.fill(2.0, x)
    assert waited == [1]
    assert (harness.download(x) == 2).all()


def test_an_event_of_another_device_is_awaited_by_the_driver(emulate: Any) -> None:
    emulation = emulate(2)
    one, other = emulation.backends
    ref = emulation.harness.upload(np.zeros(10, np.float32))
    one.fill(5.0, ref)
    done = one.mark()
    with emulation.library.logged() as calls:
        other.wait_for(done)
    assert "cuStreamWaitEvent" in calls
    assert not done.is_complete()
    other.synchronize()
    assert done.is_complete()


def test_synchronize_waits_for_all_streams(emulation: Emulation) -> None:
    backend = emulation.backend
    streams = [backend.open_stream() for _ in range(3)]
    outs = [emulation.harness.upload(np.zeros(4, np.float32)) for _ in streams]
    backend.synchronize()
    marks = []
    for stream, out in zip(streams, outs, strict=True):
        backend.switch_stream(stream)
        backend.fill(1.0, out)
        marks.append(backend.mark())
    backend.switch_stream(None)
    backend.synchronize()
    assert all(mark.is_complete() for mark in marks)


def test_timestamps_while_profiling(emulation: Emulation) -> None:
    backend, harness = emulation.backend, emulation.harness
    x, source = harness.upload(np.zeros(10, np.float32)), np.zeros(40, np.uint8)
    backend.fill(1.0, x)
    backend.start_profiling()
    backend.fill(2.0, x)
    backend.copy_to_device_async(memoryview(source), x.handle, 0).wait()
    backend.fill(3.0, x)
    first, copy, _ = backend.launch_resources()
    assert first is not None
    assert copy is not None
    # Of 2,048 threads, a processor holds as many as whole blocks have: the kernel uses no shared memory.
    threads = math.prod(first.group or ())
    assert first.occupancy == 2048 // threads * threads / 2048 > 0
    assert (copy.group, copy.occupancy) == (None, None)
    assert {first.thread, copy.thread} == {threading.get_ident()}
    launches = backend.stop_profiling()
    assert len(launches) == 3
    assert [name for name, _, _ in launches].count(launches[1][0]) == 1
    assert all(0 <= start <= end for _, start, end in launches)
    assert [start for _, start, _ in launches] == sorted(start for _, start, _ in launches)
    assert backend.stop_profiling() == []
    backend.fill(4.0, x)
    assert (harness.download(x) == 4).all()


def test_a_timestamp_that_cannot_be_recorded_is_a_typed_error(emulation: Emulation) -> None:
    backend = emulation.backend
    x = emulation.harness.upload(np.zeros(10, np.float32))
    recorded = backend.record([lambda: backend.fill(2.0, x)])
    backend.fill(1.0, x)
    backend.start_profiling()
    emulation.library.refused["cuEventCreate"] = 2
    for launch in (lambda: backend.fill(1.0, x), lambda: recorded.submit([])):
        with pytest.raises(
            OutOfMemoryError, match=r"launching \w+ failed with CUDA_ERROR_OUT_OF_MEMORY \(cuEventCreate\)"
        ):
            launch()
    emulation.library.refused.clear()
    backend.fill(3.0, x)
    assert len(backend.stop_profiling()) == 1
