"""Gradients of views that are written in place, and of views of written tensors: PyTorch's, eagerly and in captured steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal
from polyhal import Device, Tensor


def test_a_written_view_that_is_used_twice_has_the_gradient_of_pytorch(device: Device) -> None:
    def run(x: Any) -> None:
        h = (x * 2).T
        h[0] = 0
        (h + h.relu() * h).sum().backward(retain_graph=True)
        (h.exp() + h).sum().backward()

    theirs = torch.ones((3, 2), requires_grad=True)
    mine = polyhal.ones((3, 2), requires_grad=True, device=device)
    for x in (theirs, mine):
        run(x)
    assert mine.grad is not None
    assert theirs.grad is not None
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)


def test_a_written_view_that_is_used_twice_is_captured(device: Device) -> None:
    x = polyhal.ones((3, 2), requires_grad=True, device=device)

    @polyhal.jit
    def step() -> None:
        x.grad = None
        h = (x * 2).T
        h[0] = 0
        (h + h.relu()).sum().backward()

    for _ in range(4):
        step()
        assert x.grad is not None
        assert x.grad.tolist() == [[0, 4]] * 3


@pytest.mark.parametrize("captured", [False, True])
def test_a_hook_on_a_written_view_runs_once_with_the_whole_gradient(captured: bool, device: Device) -> None:
    x = polyhal.ones((3, 2), requires_grad=True, device=device)
    seen: list[Tensor] = []

    def step() -> list[Tensor]:
        seen.clear()
        x.grad = None
        h = (x * 2).T
        h[0] = 0
        h.register_hook(lambda g: seen.append(g * 1))
        h.retain_grad()
        y = (h + h.relu()).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert h.grad is not None
        return [*seen, h.grad * 1]

    run = polyhal.jit(step) if captured else step
    for _ in range(3 if captured else 1):
        found = [g.tolist() for g in run()]
        assert found == [[[1] * 3, [2] * 3], [[1] * 3, [2] * 3], [[2] * 3, [4] * 3]]
        assert x.grad is not None
        assert x.grad.tolist() == [[0, 8]] * 3


def test_a_retained_gradient_belongs_to_the_newest_value(device: Device) -> None:
    x = polyhal.ones((3, 2), requires_grad=True, device=device)
    h = (x * 2).T
    h.retain_grad()
    h.mul_(3)
    (h * h).sum().backward()
    assert h.grad is not None
    assert h.grad.tolist() == [[12] * 3] * 2


@pytest.mark.parametrize("captured", [False, True])
def test_a_view_that_was_written_through_another_one_may_be_checkpointed(captured: bool, device: Device) -> None:
    x = polyhal.ones((3, 2), requires_grad=True, device=device)

    def step() -> None:
        x.grad = None
        h = (x * 2).T
        h[0].zero_()
        polyhal.checkpoint(lambda t: t * t, h).sum().backward()

    run = polyhal.jit(step) if captured else step
    for _ in range(3 if captured else 1):
        run()
        assert x.grad is not None
        assert x.grad.tolist() == [[0, 8]] * 3


def test_a_captured_function_returns_a_view_that_was_written_through_another_one(device: Device) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        h = (x * 2).T
        h[0].copy_(w)
        return h

    x = polyhal.ones((3, 2), requires_grad=True, device=device)
    w = polyhal.ones((3,), requires_grad=True, device=device)
    run = polyhal.jit(function)
    for _ in range(4):
        x.grad = w.grad = None
        (run(x, w) ** 2).sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        assert (x.grad.tolist(), w.grad.tolist()) == ([[0, 8]] * 3, [2] * 3)


@pytest.mark.parametrize("write", ["index_add_", "index_put_", "index_copy_"])
def test_the_gradient_of_a_written_tensor_counts_views_of_all_of_it(write: str, device: Device) -> None:
    x, rows, w = (
        polyhal.zeros((3, 2, 2), device=device),
        polyhal.tensor([1], device=device),
        polyhal.ones((1, 2, 2), device=device),
    )
    w.requires_grad_()
    view = x.narrow(0, 0, 3)
    if write == "index_put_":
        x.index_put_((rows,), w, accumulate=True)
    else:
        getattr(x, write)(0, rows, w)
    (g,) = polyhal.grad(view.sum() + x.sum(), x)
    np.testing.assert_array_equal(g.numpy(), np.full((3, 2, 2), 2.0))


def test_the_gradient_of_a_written_tensor_counts_broadcasts_of_it(device: Device) -> None:
    x, w = polyhal.zeros((2, 1), device=device), polyhal.ones((1,), device=device, requires_grad=True)
    turned = polyhal.movedim(x, 1, 0)
    wide = turned.expand((3, 1, 2))
    turned[:, 0] = w
    (g,) = polyhal.grad(x.sum() + wide.sum(), x)
    np.testing.assert_array_equal(g.numpy(), [[4.0], [4.0]])
