"""Captured steps on a device with the required members and `record`: members are recorded in command buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from recorded_calls import RecordedCalls, RecordsCalls, present

import polyhal as ph
from polyhal import nn, optim
from polyhal.backends.numpy.backend import CoreNumpyBackend, create
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import Feature
from polyhal.hal.testing import verify
from polyhal.nn import functional as F

MEMBERS = ("fill", "copy", "unary", "binary", "where", "reduce", "matmul", "gather", "scatter_add")


class Recording(RecordsCalls, CoreNumpyBackend):
    """A backend with the required members and `record` that counts calls outside of command buffers."""

    def __init__(self) -> None:
        super().__init__(create("contiguous_only").info)
        self.direct = 0
        for name in MEMBERS:
            setattr(self, name, partial(self._member, name, getattr(super(), name)))

    def _member(self, name: str, function: Callable[..., None], *args: Any) -> None:
        self.direct += not self.is_recording
        self.enqueue(name, function, *args)


class RunsAtOnce(Recording):
    """Backend with a fault: it runs its members immediately instead of recording them."""

    def record(self, calls: Sequence[Callable[[], None]]) -> RecordedCalls:
        commands = super().record([])
        commands.calls = [(i, "call", call) for i, call in enumerate(calls)]
        return commands


class KeepsTheFirstNumber(Recording):
    """Backend with a fault: replays keep the recorded values of runtime scalars."""

    def _member(self, name: str, function: Callable[..., None], *args: Any) -> None:
        super()._member(name, function, *[x.value if isinstance(x, RuntimeScalar) else x for x in args])


class KeepsTheFirstMemory(Recording):
    """Backend with a fault: replays keep the recorded bindings of memory."""

    def _member(self, name: str, function: Callable[..., None], *args: Any) -> None:
        super()._member(name, function, *[present(x) if isinstance(x, Ref) else x for x in args])


def _trained(device: Device) -> tuple[list[float], Any]:
    """Return the losses of a captured step with changing learning rates, and the step."""
    ph.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)).to(device)
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.7)

    @ph.jit
    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for _ in range(6):
        x, y = rng.normal(size=(4, 5)).astype(np.float32), rng.integers(0, 3, 4)
        losses.append(step(ph.tensor(x, device=device), ph.tensor(y, device=device)).item())
        schedule.step()
    return losses, step


def test_a_captured_step_records_its_core_members_and_computes_the_same() -> None:
    backend = Recording()
    device = Device.opened("recording", backend)
    assert device.features == Feature.COMMAND_BUFFERS
    losses, step = _trained(device)
    assert losses == _trained(Device("numpy:contiguous_only"))[0]
    x, y = ph.ones((4, 5), device=device), ph.tensor([0, 1, 2, 0], device=device)
    backend.direct = 0
    step(x, y)
    assert backend.direct == 0


def test_the_copies_of_strided_operands_are_recorded() -> None:
    backend = Recording()
    device = Device.opened("recording", backend)

    @ph.jit
    def step(x: ph.Tensor, scale: ph.Tensor) -> ph.Tensor:
        return (x.T @ x).T * scale + x[::2, :].sum() * 0.5

    for k in range(4):
        x, scale = (np.arange(12, dtype=np.float32) + k).reshape(4, 3), np.float32(k)
        backend.direct = 0
        result = step(ph.tensor(x, device=device), ph.tensor(scale, device=device)).numpy()
        assert k < 2 or backend.direct == 0
        np.testing.assert_allclose(result, (x.T @ x).T * scale + x[::2].sum() * 0.5, rtol=1e-5)


def test_the_kit_passes_a_device_that_records() -> None:
    report = verify(Device.opened("recording", Recording()), only="contract/record/*")
    assert report.ok, report.failed[0].problem
    assert report.passed == 3


@pytest.mark.parametrize(
    ("fault", "case"),
    [(RunsAtOnce, "origins"), (KeepsTheFirstNumber, "numbers"), (KeepsTheFirstMemory, "members")],
)
def test_the_kit_finds_a_device_that_records_wrongly(fault: type[Recording], case: str) -> None:
    assert not verify(Device.opened("faulty", fault()), only=f"contract/record/{case}").ok
