"""Regions of a tensor replaced in a new tensor or in place: the tape saves no tensor, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal
from polyhal import Device

REPLACED: dict[str, tuple[Callable[[Any, Any, Any], Any], tuple[int, ...]]] = {
    "a slice": (lambda m, x, v: m.slice_scatter(x, v, 1, 1, 4, 2), (3, 2)),
    "a slice of a transposed tensor": (lambda m, x, v: m.slice_scatter(x.mT, v, 0, 0, 3), (3, 3)),
    "one row": (lambda m, x, v: m.select_scatter(x, v, 0, -1), (4,)),
    "all of one row": (lambda m, x, v: m.select_scatter(x[:1], v, 0, 0), (4,)),
    "one column": (lambda m, x, v: m.select_scatter(x, v, 1, 2), (3,)),
    "a diagonal": (lambda m, x, v: m.diagonal_scatter(x, v, 1), (3,)),
    "a lower diagonal of exchanged axes": (lambda m, x, v: m.diagonal_scatter(x, v, -1, -1, 0), (3,)),
}
X, V = np.arange(12.0).reshape(3, 4) / 5, np.cos(np.arange(9.0))


def _passes(m: Any, f: Callable[[Any, Any, Any], Any], x: Any, v: Any) -> list[Any]:
    """Return the result, gradients after two passes, and whether the gradient of `x` requires one under `create_graph`."""
    x.requires_grad_()
    v.requires_grad_()
    y = f(m, x, v)
    (y * y).sum().backward()
    y.tanh().sum().backward()
    (g,) = m.autograd.grad(f(m, x, v).sin().sum(), x, create_graph=True)
    return [y, x.grad, v.grad, g, *m.autograd.grad((g * g).sum(), x)]


@pytest.mark.parametrize("kind", REPLACED)
def test_a_replaced_region_has_pytorchs_gradients_in_two_backward_passes(kind: str, device: Device) -> None:
    f, shape = REPLACED[kind]
    v = V[: int(np.prod(shape))].reshape(shape)
    found = _passes(polyhal, f, *(polyhal.tensor(a, dtype=polyhal.float32, device=device) for a in (X, v)))
    expected = _passes(torch, f, torch.tensor(X), torch.tensor(v))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_regions_of_complex_tensors_are_replaced(device: Device) -> None:
    x, v = np.array([[1 + 2j, 3j], [4, 5 - 1j]], np.complex64), np.array([7j, 8], np.complex64)
    found = polyhal.select_scatter(polyhal.tensor(x, device=device), polyhal.tensor(v, device=device), 1, 0)
    expected = torch.select_scatter(torch.tensor(x), torch.tensor(v), 1, 0)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_regions_are_replaced_in_batches(device: Device) -> None:
    def f(m: Any) -> Callable[[Any, Any], Any]:
        return lambda x, v: m.diagonal_scatter(m.select_scatter(x, v, 0, 1), v[:3], 1)

    x, v = (polyhal.tensor(a, dtype=polyhal.float32, device=device) for a in (X, V[:8].reshape(2, 4)))
    expected = torch.func.vmap(f(torch), (None, 0))(torch.tensor(X), torch.tensor(V[:8].reshape(2, 4)))
    np.testing.assert_allclose(polyhal.vmap(f(polyhal), (None, 0))(x, v).numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("written", ["whole", "part", "whole view"])
def test_the_gradient_of_overwritten_elements_is_a_constant_as_in_pytorch(written: str, device: Device) -> None:
    """Zeros for the elements of a whole tensor do not depend on anything; PyTorch computes those of a part or a view."""

    def passes(m: Any, x: Any) -> tuple[bool, list[float]]:
        y = x * x
        target = {"whole": y, "part": y[:1], "whole view": y.view(2, 1)}[written]
        target[...] = m.tensor(0.5)
        (g,) = m.autograd.grad((y * y).sum(), x, create_graph=True)
        return g.requires_grad, g.tolist()

    found = passes(polyhal, polyhal.tensor([1.0, 2.0], device=device, requires_grad=True))
    assert found == passes(torch, torch.tensor([1.0, 2.0], requires_grad=True))
