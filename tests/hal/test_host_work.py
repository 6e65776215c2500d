"""Ops that fall back to the host warn once with the bytes copied, raise if that is forbidden, and count in reports."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.host_work import HOST_WORK
from polyhal.hal.device import Device
from polyhal.hal.errors import FallbackRefusedError, UnsupportedOpError
from polyhal.hal.ops import OPS
from polyhal.hal.ops.lowering import OnHost
from polyhal.hal.system.reference.op_calls import OpCall, is_number, specs_of
from polyhal.hal.testing.kit.sample_calls import runnable_calls
from polyhal.hal.testing.kit.scope import Scope, primary

DECLARED = [op.name for op in OPS if op.strategy(OnHost) is not None]
BYTES = 64 + 64
"""Bytes copied for the exponential of a 4 x 4 matrix: the matrix and the result."""


def fresh(device: Device) -> Device:
    """Return a device without plans or earlier warnings."""
    return Device.opened(device.name, device.backend)


def matrix(device: Device) -> ph.Tensor:
    return ph.tensor(np.eye(4, dtype=np.float32) * 4, device=device)


def runs_numpy(device: Device) -> bool:
    """Return True if the kernels of a device are NumPy functions, so that nothing is copied."""
    return isinstance(matrix(device).ref.handle, np.ndarray)


@pytest.fixture
def other(device: Device) -> Device:
    """Return a device other than NumPy: the simulated GPU if it is under test."""
    return fresh(Device("sim") if runs_numpy(device) else device)


def calls(device: Device) -> Iterator[OpCall]:
    """Return one sample call per op. All of them run on the simulated GPU and NumPy, which compile nothing."""
    compiles = device.name.partition(":")[0] not in ("sim", "numpy")
    for op in OPS:
        if not compiles or op.name in DECLARED:
            yield from runnable_calls(device, op, primary(op), Scope(small=True))[:1]


def planned(device: Device, call: OpCall) -> set[str]:
    """Return the ops of a call that run on the host."""
    specs = tuple(type(v) if is_number(v) else spec for v, spec in zip(call.values, specs_of(call.values), strict=True))
    try:
        plan = device.planner.plan(call.op, specs, dispatch.freeze(tuple(call.params.values())))
    except UnsupportedOpError:
        return set()
    return {r.op for r in plan.resolution if r.step is ResolutionStep.HOST}


@pytest.mark.parametrize("run", [lambda f: f, ph.jit, lambda f: ph.jit(f, warm_up=False)])
def test_one_warning_per_op_with_the_bytes(
    other: Device, run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")
    x = matrix(other)
    f = run(lambda x: ph.linalg.matrix_exp(x))
    before = HOST_WORK.counts()
    with pytest.warns(UserWarning, match=rf"\[matrix_exponential\] runs on the host and moves {BYTES} bytes") as caught:
        f(x)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            np.testing.assert_allclose(f(x).numpy(), np.exp(4) * np.eye(4), rtol=1e-5)
    assert HOST_WORK.since(before) == {"matrix_exponential": (4, 4 * BYTES)}


def test_it_can_be_forbidden_also_after_the_op_was_planned(other: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = matrix(other)
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    with pytest.raises(
        FallbackRefusedError, match=rf"\[matrix_exponential\] .* would run on the host and move {BYTES} bytes"
    ):
        ph.linalg.matrix_exp(x)
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    captured = ph.jit(lambda x: ph.linalg.matrix_exp(x + x), warm_up=False)
    captured(x), ph.linalg.matrix_exp(x), ph.unique(x, dim=0)
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    for function in (ph.linalg.matrix_exp, captured, lambda x: ph.unique(x, dim=0)):
        with pytest.raises(FallbackRefusedError):
            function(x)


def test_no_op_counts_as_host_work_if_numpy_is_the_device(
    numpy_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    device = fresh(numpy_device)
    x = matrix(device)
    assert ph.linalg.cholesky(x).tolist() == (2 * np.eye(4)).tolist()
    assert ph.unique(x, dim=0).shape == (4, 4)
    for call in calls(device):
        assert planned(device, call) == set(), call.op.name


def test_every_op_runs_on_the_device_or_warns(other: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")
    on_host = set()
    for call in calls(other):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parts = planned(fresh(other), call)
        assert parts == {str(w.message).partition("]")[0].removeprefix("[") for w in caught}, call.op.name
        on_host |= parts
    assert {"matrix_exponential", "eigen"} <= on_host <= set(DECLARED)


def test_profiles_and_explanations_count_host_work(other: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    x = matrix(other)
    with ph.profile() as profile:
        ph.linalg.matrix_exp(x)
        ph.linalg.matrix_exp(x)
    assert profile.host_work == {"matrix_exponential": (2, 2 * BYTES)}
    assert re.search(rf"matrix_exponential: 2 calls, {2 * BYTES} B moved", profile.table())
    assert "on the host, moving" in str(ph.explain("matrix_exponential", other))
