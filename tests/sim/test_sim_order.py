"""Queues: results and virtual times do not depend on how threads are scheduled."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.backends.sim.backend import SimBackend
from polyhal.backends.sim.machine import SimulatedMachine
from polyhal.backends.sim.selector import SimSelector
from polyhal.hal import dtypes
from polyhal.hal.core.hardware.profile import load_profile
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, contiguous

SPEC = contiguous(dtypes.float32, (2048,))
QUEUES = 3

command = st.tuples(st.just("add"), st.integers(0, QUEUES - 1), st.integers(0, QUEUES - 1))
"""Add a buffer to a queue's buffer, on that queue."""
wait = st.tuples(st.just("wait"), st.integers(0, QUEUES - 1), st.integers(0, QUEUES - 1))
"""Make a queue wait for all enqueued work of another one."""
upload = st.tuples(st.just("upload"), st.integers(0, QUEUES - 1), st.integers(0, 9))
programs = st.lists(st.one_of(command, wait, upload), max_size=30)


def run(program: list[tuple[str, int, int]], *, flush: bool) -> tuple[list[list[float]], str]:
    """Run a program whose queues wait for each other before they read each other's buffers. Returns buffers and the log."""
    backend = SimBackend(SimulatedMachine(load_profile("teaching"), 1), SimSelector())
    queues = [backend.open_stream() for _ in range(QUEUES)]
    refs = [Ref(backend.allocate(SPEC.nbytes), SPEC) for _ in range(QUEUES)]
    for ref in refs:
        backend.fill(1.0, ref)
    backend.synchronize()
    backend.start_profiling()
    for action, target, source in program:
        if action == "upload":
            backend.switch_stream(queues[target])
            backend.copy_to_device(byte_view(np.full(SPEC.shape, source, np.float32)), refs[target].handle, 0)
        elif action == "wait" or source != target:
            _wait(backend, queues[target], queues[source])
        if action == "add":
            backend.switch_stream(queues[target])
            backend.binary("add", refs[target], refs[source], refs[target])
            if source != target:
                _wait(backend, queues[source], queues[target])
        if flush:
            backend.flush()
    backend.switch_stream(None)
    times = backend.stop_profiling()
    out = np.empty(SPEC.shape, np.float32)
    values = []
    for ref in refs:
        backend.copy_from_device(ref.handle, 0, byte_view(out))
        assert (out == out[0]).all()
        values.append(float(out[0]))
    return values, repr((times, backend.virtual_time))


def _wait(backend: SimBackend, later: object, earlier: object) -> None:
    backend.switch_stream(earlier)  # type: ignore[arg-type]
    event = backend.mark()
    backend.switch_stream(later)  # type: ignore[arg-type]
    backend.wait_for(event)


def expected(program: list[tuple[str, int, int]]) -> list[float]:
    values = np.ones(QUEUES, np.float32)
    for action, target, source in program:
        if action == "upload":
            values[target] = source
        elif action == "add":
            values[target] += values[source]
    return [float(v) for v in values]


@settings(max_examples=25)
@given(programs)
def test_queues_that_wait_for_each_other_compute_as_one(program: list[tuple[str, int, int]]) -> None:
    values, times = run(program, flush=False)
    assert values == expected(program)
    assert run(program, flush=True) == (values, times), "doorbells that ring earlier changed something"


def test_packets_of_a_queue_stay_while_another_queue_is_ahead() -> None:
    """Packets of a captured step stay in host memory until the device has fetched them, in all queues."""
    machine = SimulatedMachine(load_profile("h200"), 2)
    slow, device = (Device.opened(f"order:{i}", SimBackend(machine, SimSelector("h200", 2, i))) for i in (0, 1))
    x = ph.ones((8,), device=device)
    step = ph.jit(lambda x: x * 3 + 1, warm_up=False)
    for _ in range(3):
        step(x)
    device.synchronize()
    big = ph.ones((512, 512), device=slow)
    for _ in range(20):
        big = (big @ big) * (1 / 512)
    device.backend.wait_for(slow.backend.mark())  # type: ignore[attr-defined]
    result = step(x)
    with device.stream().selected():
        (x + 1).numpy()
    assert result.tolist() == [4.0] * 8
