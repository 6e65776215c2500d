"""Recorded launches that are submitted repeatedly: one by one, and in the driver's command buffers if it has them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from polyhal.backends.opencl.command_buffer import OpenCLCommandBuffer, record_as
from polyhal.backends.opencl.driver import Driver, extension_versions
from polyhal.hal import dtypes
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import BackendError, NumberRangeError, OutOfMemoryError
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import BindingSlot

_SPEC = contiguous(dtypes.float32, (100,))


@pytest.fixture(params=["one by one", "command buffer"])
def buffered(request: pytest.FixtureRequest, device: Any) -> bool:
    wanted = request.param == "command buffer"
    if wanted and device.backend.runtime.driver.command_buffers is None:
        pytest.skip("the device has no command buffers")
    return wanted


def _memory(device: Any, value: float) -> Any:
    handle = device.backend.allocate(_SPEC.nbytes)
    device.backend.fill(value, Ref(handle, _SPEC, 0))
    return handle


def _read(device: Any, handle: Any) -> np.ndarray:
    out = np.empty(100, np.float32)
    device.backend.copy_from_device(handle, 0, memoryview(out.view(np.uint8)))
    return out


class _Step:
    """`moving += number`, `total = moving + total`, and a copy of half of it; nothing runs before the first replay."""

    def __init__(self, device: Any, buffered: bool) -> None:
        backend = device.backend
        self.number = 2.0
        self.live = RuntimeScalar(lambda: self.number)
        self.place = BindingSlot()
        self.total, self.half, scratch = (_memory(device, 0) for _ in range(3))
        moving = Ref(self.place, _SPEC, 0)
        total = Ref(self.total, _SPEC, 0)
        part = contiguous(dtypes.float32, (50,))._replace(aligned=False)
        calls = [
            partial(backend.fill, self.live, Ref(scratch, _SPEC, 0)),
            partial(backend.binary, "add", moving, Ref(scratch, _SPEC, 0), moving),
            partial(backend.binary, "add", moving, total, total),
            partial(backend.copy, Ref(self.place, part, 50), Ref(self.half, part, 0)),
        ]
        self.recorded = record_as(backend.runtime, calls, buffered=buffered)

    def run(self, handle: Any) -> None:
        self.live.refresh()
        moved = [] if self.place.handle is handle else [self.place]
        self.place.handle = handle
        self.recorded.submit(moved)


def test_replays_follow_numbers_and_memory(device: Any, buffered: bool) -> None:
    step = _Step(device, buffered)
    assert [x.call for x in step.recorded.launches] == [0, 1, 2, 3]
    first, second = _memory(device, 1), _memory(device, 10)
    assert _read(device, step.total).tolist() == [0] * 100
    values, total = {id(first): 1.0, id(second): 10.0}, 0.0
    for number, handle in [(2.0, first), (2.0, first), (3.0, first), (3.0, second), (-1.5, first), (0.25, second)]:
        step.number = number
        step.run(handle)  # without a wait in between: an update must not affect the submission in flight
        values[id(handle)] += number
        total += values[id(handle)]
    assert _read(device, step.total).tolist() == [total] * 100
    assert _read(device, step.half)[:50].tolist() == [values[id(second)]] * 50
    assert _read(device, first).tolist() == [values[id(first)]] * 100


def test_a_number_that_does_not_fit_spoils_no_other_change(device: Any, buffered: bool) -> None:
    backend = device.backend
    outs, slot = [_memory(device, 0) for _ in range(2)], BindingSlot()
    first, wide = RuntimeScalar(lambda: 1.0), RuntimeScalar(lambda: 7)
    longs = device.empty(dtypes.int64, (1,))
    calls = [partial(backend.fill, first, Ref(slot, _SPEC, 0)), partial(backend.fill, wide, longs)]
    slot.handle = outs[0]
    commands = record_as(backend.runtime, calls, buffered=buffered)
    commands.submit([slot])
    slot.handle, first.value, wide.value = outs[1], 2.0, 2**64
    for rebound in ([slot], []):
        with pytest.raises(NumberRangeError, match="an integer of 65 bits"):
            commands.submit(rebound)
    wide.value = 2**63
    commands.submit([])
    assert [set(_read(device, out)) for out in outs] == [{1}, {2}]
    assert device.download(longs)[0] == -(2**63)


def test_profiled_replays_name_each_launch(device: Any, buffered: bool) -> None:
    step = _Step(device, buffered)
    handle = _memory(device, 1)
    step.run(handle)
    device.backend.start_profiling()
    step.number = 5.0
    step.run(handle)
    events = device.backend.stop_profiling()
    assert [name for name, _, _ in events] == [x.kernel for x in step.recorded.launches]
    assert all(start <= end for _, start, end in events)
    step.run(handle)
    assert _read(device, handle).tolist() == [1 + 2 + 5 + 5] * 100


def test_queues_are_bounded(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = device.backend.runtime.queues
    device.backend.synchronize()
    monkeypatch.setattr(queues, "batch_size", 3)
    monkeypatch.setattr(queues, "max_batches", 2)
    step = _Step(device, False)
    handle = _memory(device, 0)
    for _ in range(10):
        step.run(handle)
        assert len(queues.current()._markers) <= 2
    device.backend.synchronize()
    assert _read(device, handle).tolist() == [20] * 100


def test_a_launch_that_the_driver_refuses_is_named(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step = _Step(device, False)
    assert isinstance(step.recorded, OpenCLCommandBuffer)
    driver = device.backend.runtime.driver
    monkeypatch.setattr(driver, "enqueue", lambda *args: -5)
    with pytest.raises(
        OutOfMemoryError, match=r"launching .* over \(\d+,\) in groups of .* failed with OUT_OF_RESOURCES"
    ):
        step.run(_memory(device, 0))
    monkeypatch.setattr(driver, "set_argument", lambda *args: -51)
    with pytest.raises(BackendError, match=r"setting argument 0 of .* failed with INVALID_ARG_SIZE"):
        step.run(_memory(device, 0))


def test_command_buffers_need_both_extensions(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = device.backend.runtime
    versions = extension_versions(runtime.device)
    if "cl_khr_command_buffer_mutable_dispatch" not in versions:
        assert Driver(runtime.device).command_buffers is None
    old = {**versions, "cl_khr_command_buffer": (0, 9, 4), "cl_khr_command_buffer_mutable_dispatch": (0, 9, 0)}
    monkeypatch.setattr("polyhal.backends.opencl.driver.extension_versions", lambda device: old)
    assert Driver(runtime.device).command_buffers is None
