"""The event log: the teaching flow step by step, as text, JSON and Chrome trace, equal in each run."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from simulated import OpenSim, sim_of

from polyhal.backends.sim.backend import SimBackend
from polyhal.backends.sim.event_log import Action, EventLog
from polyhal.hal import dtypes
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, contiguous


def teaching_flow(backend: SimBackend) -> EventLog:
    """Allocate, write, submit a product, read the result asynchronously, free."""
    a = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    b, out = a.reshape(1, 3, 2).copy(), np.empty((1, 2, 2), np.float32)
    with backend.record_events() as log:
        x, y, z = (backend.allocate(array.nbytes) for array in (a, b, out))
        backend.copy_to_device(byte_view(a), x, 0)
        backend.copy_to_device(byte_view(b), y, 0)
        refs = [Ref(h, contiguous(dtypes.float32, v.shape)) for h, v in ((x, a), (y, b), (z, out))]
        backend.matmul(*refs)
        done = threading.Event()
        event = backend.copy_from_device_async(z, 0, byte_view(out))
        event.add_callback(lambda error: done.set())
        assert done.wait(10)
        event.wait()
        for handle in (x, y, z):
            backend.deallocate(handle)
    assert np.array_equal(out, a @ b)
    return log


def test_every_step_of_the_flow_is_in_the_log(sim: Device) -> None:
    log = teaching_flow(sim_of(sim))
    actions = [e.action for e in log.entries()]
    assert [actions.count(a) for a in (Action.ALLOCATE, Action.WRITE, Action.READ, Action.FREE)] == [3, 2, 1, 3]
    assert [actions.count(a) for a in (Action.BUILD, Action.EXECUTE, Action.TRANSFER, Action.CALLBACK)] == [1, 1, 3, 1]
    assert actions.count(Action.SUBMIT) == actions.count(Action.DOORBELL) == 4


def test_commands_begin_after_their_doorbell_and_end_before_their_callback(sim: Device) -> None:
    log = teaching_flow(sim_of(sim))
    by_command: dict[int, dict[Action, tuple[int, int]]] = {}
    for e in log.entries():
        by_command.setdefault(e.sequence, {})[e.action] = (e.start_ns, e.end_ns)
    for steps in by_command.values():
        if Action.EXECUTE in steps:
            assert steps[Action.SUBMIT][0] <= steps[Action.EXECUTE][0]
        if Action.CALLBACK in steps:
            assert steps[Action.TRANSFER][1] <= steps[Action.CALLBACK][0]


def test_the_text_is_equal_in_each_run(open_sim: OpenSim) -> None:
    first, second = (teaching_flow(sim_of(open_sim())).text() for _ in range(2))
    assert first == second
    assert "start us" in first.splitlines()[0]
    assert any("matmul(float32[1, 2, 3], float32[1, 3, 2]) -> float32[1, 2, 2]" in line for line in first.splitlines())


def test_nothing_is_logged_outside_of_the_block(sim: Device) -> None:
    backend = sim_of(sim)
    log = teaching_flow(backend)
    before = len(log)
    backend.deallocate(backend.allocate(100))
    assert len(log) == before
    assert backend.gpu.log is None


@pytest.mark.parametrize("name", ["log.txt", "log.json", "log.trace.json"])
def test_files_are_written_by_their_ending(sim: Device, tmp_path: Path, name: str) -> None:
    log = teaching_flow(sim_of(sim))
    log.save(tmp_path / name)
    text = (tmp_path / name).read_text(encoding="utf-8")
    if name == "log.txt":
        assert text == log.text() + "\n"
    elif name == "log.json":
        rows = json.loads(text)
        assert rows == log.to_json()
        allocation = next(r for r in rows if r["action"] == "allocate")
        assert allocation["details"].keys() == {"handle", "address", "nbytes"}
    else:
        events = json.loads(text)["traceEvents"]
        assert {e["tid"] for e in events} == {"host", "compute", "DMA 0", "DMA 1", "interrupts"}
        kernel = next(e for e in events if e["tid"] == "compute")
        assert kernel["ph"] == "X"
        assert kernel["dur"] >= 2.0
        assert kernel["args"]["flops"] == 2 * 2 * 2 * 3
