"""Executors: all implement the protocols, and forwarding executors forward every member."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.compile.capture.recorder import StepRecorder
from polyhal.hal.compile.capture.scopes import ModuleScopes
from polyhal.hal.compile.ir.trace import Tracer
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import EAGER, Array, EagerExecutor, Executor, ForwardingExecutor
from polyhal.hal.core.execution.recorder import Recorder
from polyhal.hal.core.execution.tape_hooks import TapeHooks
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import CaptureError
from polyhal.hal.ops import FUNCTIONS


def members(protocol: type) -> list[str]:
    return sorted(name for name in vars(protocol) if not name.startswith("_"))


MEMBERS = members(Executor)
EXECUTORS = (EagerExecutor, StepRecorder, ForwardingExecutor, Tracer)
IMPLEMENTATIONS = [
    *((kind, Executor, name) for kind in EXECUTORS for name in MEMBERS),
    *((StepRecorder, Recorder, name) for name in members(Recorder)),
    *((kind, TapeHooks, name) for kind in (StepRecorder, ModuleScopes) for name in members(TapeHooks)),
]


@pytest.mark.parametrize(("kind", "protocol", "name"), IMPLEMENTATIONS)
def test_every_member_of_a_protocol_is_implemented(kind: type, protocol: type, name: str) -> None:
    own, declared = inspect.getattr_static(kind, name), vars(protocol)[name]
    if isinstance(declared, property):
        assert own is None or isinstance(own, (property, bool))
    else:
        function = own.__func__ if isinstance(own, staticmethod) else own
        wanted = [p for p in inspect.signature(declared).parameters if p != "self"]
        assert [p for p in inspect.signature(function).parameters if p != "self"] == wanted


class _Noting:
    """Target of a forwarding executor that records its calls."""

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> tuple[Any, ...]:
            return (name, *args)

        return call


@pytest.mark.parametrize("name", [m for m in MEMBERS if not isinstance(vars(Executor)[m], property)])
def test_a_forwarding_executor_forwards_every_member(name: str) -> None:
    base = _Noting()
    calls: list[tuple[Any, ...]] = []
    setattr(base, name, lambda *args: calls.append(args))
    parameters = [p for p in inspect.signature(vars(Executor)[name]).parameters if p != "self"]
    getattr(ForwardingExecutor(base), name)(*parameters)  # type: ignore[arg-type]
    assert calls == [tuple(parameters)]


def test_hal_runs_ops_on_its_own_arrays(numpy_device: Device) -> None:
    x = Array(numpy_device, *numpy_device.upload(np.arange(3, dtype=np.float32), float32))
    np.testing.assert_array_equal(EAGER.read(FUNCTIONS["add"](x, x)), [0, 2, 4])


@pytest.fixture
def recorder() -> Iterator[StepRecorder]:
    recorder = StepRecorder()
    with dispatch.executing(recorder):
        yield recorder
    recorder.abandon()


def test_a_recorder_runs_actions_on_replay_only(recorder: StepRecorder) -> None:
    done: list[int] = []
    dispatch.on_replay(lambda: done.append(1))
    assert done == []
    EAGER.on_replay(lambda: done.append(2))
    assert done == [2]


def test_a_snapshot_is_taken_only_if_it_can_be_rolled_back() -> None:
    state = [1]

    def snapshot() -> Any:
        return lambda before=list(state): state.__setitem__(slice(None), before)

    assert EAGER.recorder is None, "nothing can be rolled back"
    recorder = StepRecorder()
    recorder.on_rollback(snapshot)
    state.append(2)
    recorder.abandon()
    assert state == [1]


def test_ops_below_an_eager_block_run_while_a_step_is_recorded(recorder: StepRecorder, device: Device) -> None:
    with dispatch.executing(EAGER):
        x = ph.ones((2,), device=device) + 1
    assert x.tolist() == [2, 2]
    with pytest.raises(CaptureError, match="is read while it is only being recorded"):
        (x * 2).tolist()


def test_anomaly_detection_is_rejected_while_a_step_is_recorded(recorder: StepRecorder) -> None:
    with pytest.raises(CaptureError, match=r"\[detect_anomaly\] .*test_executors.py"), ph.autograd.detect_anomaly():
        pytest.fail("the block is not entered")


def test_decompositions_are_traced_in_front_of_any_executor(recorder: StepRecorder) -> None:
    tracer = Tracer(())
    assert not tracer.replays_graphs
    assert tracer.fuses_later
