"""Gradients of reductions where the derivative does not exist are finite, and those of PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.nn import functional as F

_ZERO_ROW = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)


def _gradients(function: Any, theirs: Any, values: Any, device: ph.Device) -> tuple[np.ndarray, np.ndarray]:
    x = ph.tensor(values, device=device, requires_grad=True)
    t = torch.tensor(values, requires_grad=True)
    function(x).sum().backward()
    theirs(t).sum().backward()
    assert x.grad is not None
    assert t.grad is not None
    return x.grad.numpy(), t.grad.numpy()


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, 0.5, math.inf, -math.inf, 0.0])
def test_normalize_of_a_row_of_zeros(p: float, device: ph.Device) -> None:
    ours, theirs = _gradients(
        lambda x: F.normalize(x, p, 1), lambda x: torch.nn.functional.normalize(x, p, 1), _ZERO_ROW, device
    )
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)
    if np.isfinite(theirs).all():
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_normalize_with_p_0_divides_by_the_count_of_elements_that_are_not_0(device: ph.Device) -> None:
    assert F.normalize(ph.tensor([[1.0, 0.0, 2.0]], device=device), p=0.0).tolist() == [[0.5, 0.0, 1.0]]


@pytest.mark.parametrize("correction", [0, 1])
def test_std_of_equal_numbers(correction: int, device: ph.Device) -> None:
    ours, theirs = _gradients(
        lambda x: ph.std(x, correction=correction),
        lambda x: torch.std(x, correction=correction),
        np.full(3, 2.0, np.float32),
        device,
    )
    np.testing.assert_array_equal(ours, theirs)


def test_reductions_of_nothing(device: ph.Device) -> None:
    nothing = ph.zeros((0, 2), device=device)
    assert np.isnan(nothing.mean(0).numpy()).all()
    assert np.isnan(nothing.var(0).numpy()).all()
    assert ph.logsumexp(nothing, 0).tolist() == [-math.inf, -math.inf]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cumsum", "cumprod", "sort", "sum", "mean", "max", "flip"])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_tensor_without_axes_has_axis_0_and_minus_1(name: str, axis: int, device: ph.Device) -> None:
    x = ph.tensor(3.0, device=device, requires_grad=True)
    t = torch.tensor(3.0, requires_grad=True)
    ours = getattr(ph, name)(x, axis)
    theirs = getattr(torch, name)(t, [axis] if name == "flip" else axis)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    ours.backward()
    theirs.backward()
    assert ours.shape == ()
    assert ours.item() == theirs.item()
    assert x.grad is not None
    assert t.grad is not None
    assert x.grad.item() == t.grad.item()


def test_an_axis_of_a_tensor_without_axes_is_0_or_minus_1() -> None:
    for function in (ph.cumsum, ph.softmax, ph.sum, ph.sort):
        with pytest.raises(ph.errors.ShapeError, match="axis 1 is out of range"):
            function(ph.tensor(1.0, device="numpy"), 1)


def test_dtype_casts_the_input_first_and_the_result(device: ph.Device) -> None:
    x = ph.tensor([1.9, 2.9], device=device)
    assert ph.sum(x, dtype=ph.int32).dtype is ph.int32
    assert ph.sum(x, dtype=ph.int32).item() == 3
    half = ph.softmax(x, 0, dtype=ph.float16)
    assert half.dtype is ph.float16
    assert ph.cumsum(x, 0, dtype="int64").tolist() == [1, 3]


@pytest.mark.parametrize("values", [[2.0, 3.0, 4.0], [0.0, 3.0, 4.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
def test_second_derivatives_of_products_with_zeros(values: list[float], device: ph.Device) -> None:
    x, t = ph.tensor(values, device=device, requires_grad=True), torch.tensor(values, requires_grad=True)
    weights = [1.0, 2.0, 5.0]
    (ours,) = ph.grad([ph.prod(x)], [x], create_graph=True)
    (theirs,) = torch.autograd.grad(t.prod(), t, create_graph=True)
    assert ours.tolist() == theirs.tolist()
    (ours,) = ph.grad([(ours * ph.tensor(weights, device=device)).sum()], [x])
    (theirs,) = torch.autograd.grad((theirs * torch.tensor(weights)).sum(), t)
    assert ours.tolist() == theirs.tolist()
