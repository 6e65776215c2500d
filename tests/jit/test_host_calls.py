"""Python functions in the middle of captured steps."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.errors import ShapeError


def _order(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if (x > 100).any():
        raise ValueError("too large")
    return np.argsort(x.sum(1)), x.max(0)


def _first(x: np.ndarray) -> np.ndarray:
    return np.argsort(x[:, 0])


class _Task:
    def __init__(self, device: ph.Device) -> None:
        ph.manual_seed(0)
        self.model = nn.Linear(3, 3).to(device)
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1)
        self.sums = ph.zeros((3,), device=device)

    def step(self, x: ph.Tensor) -> tuple[ph.Tensor, ...]:
        h = self.model(x)
        order, largest = ph.host_call(_order, h.detach(), results=[((4,), ph.int64), ((3,), ph.float32)])
        (first,) = ph.host_call(_first, h.detach(), results=[((4,), ph.int64)])
        self.sums.add_(largest)
        ((h[order] * h).sum() + h[first].square().sum()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        (after,) = ph.host_call(_first, self.model(x).detach(), results=[((4,), ph.int64)])
        return order, first, after

    def state(self) -> list[np.ndarray]:
        return [x.numpy() for x in (*self.model.parameters(), self.sums)]


def test_functions_are_called_in_each_run(device: ph.Device) -> None:
    rng = np.random.default_rng(0)
    batches = [ph.tensor(rng.standard_normal((4, 3)).astype(np.float32), device=device) for _ in range(6)]
    eager, captured = _Task(device), _Task(device)
    step = ph.jit(captured.step)
    for x in batches:
        for a, b in zip(eager.step(x), step(x), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    for a, b in zip(eager.state(), captured.state(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)  # fused sums round differently
    assert step.explain().count("= host_call(") == 2  # calls with equal operands are one
    before = captured.state()
    with pytest.raises(ValueError, match="too large"):
        step(ph.full((4, 3), 1e6, device=device))
    assert all(map(np.array_equal, before, captured.state()))


def test_results_must_have_the_declared_shapes(device: ph.Device) -> None:
    with pytest.raises(ShapeError, match=r"_first returned int64\[2\]; expected int64\[3\]"):
        ph.host_call(_first, ph.zeros((2, 2), device=device), results=[((3,), ph.int64)])
