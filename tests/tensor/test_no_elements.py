"""Tensors of no elements have PyTorch's results, gradients and errors, eager and captured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError

_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a chain of elementwise ops": lambda library, x: library.tanh(x * 2.0 + 1.0) - x,
    "logsumexp": lambda library, x: library.logsumexp(x, -1) + library.logsumexp(x, (0, 1)),
    "logcumsumexp": lambda library, x: library.logcumsumexp(x, -1),
    "cumprod": lambda library, x: library.cumprod(x, -1),
    "product of its transpose": lambda library, x: x.mT @ x,
    "layer norm": lambda library, x: library.nn.functional.layer_norm(x, x.shape[-1:]),
    "attention": lambda library, x: library.nn.functional.scaled_dot_product_attention(x, x, x),
    "mean squared error": lambda library, x: library.nn.functional.mse_loss(x, x + 1.0),
}


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_results_and_gradients_equal_pytorchs(device: Device, name: str) -> None:
    function = _FUNCTIONS[name]
    for shape in ((0, 3), (3, 0)):
        wanted = torch.zeros(shape, requires_grad=True)
        expected = function(torch, wanted)
        expected.sum().backward()
        for step in (function, polyhal.jit(lambda x: function(polyhal, x))):
            x = polyhal.zeros(shape, device=device, requires_grad=True)
            for _ in range(2):
                x.grad = None
                y = step(polyhal, x) if step is function else step(x)
                y.sum().backward()
            np.testing.assert_array_equal(y.numpy(), expected.detach().numpy())
            assert x.grad.shape == wanted.grad.shape


def test_attention_to_no_key_is_zero(device: Device) -> None:
    q = polyhal.ones((2, 4, 8), device=device, requires_grad=True)
    k = polyhal.ones((2, 0, 8), device=device, requires_grad=True)
    y = polyhal.nn.functional.scaled_dot_product_attention(q, k, k)
    y.sum().backward()
    assert y.shape == (2, 4, 8)
    assert not y.numpy().any()
    assert not q.grad.numpy().any()
    assert k.grad.shape == k.shape


@pytest.mark.parametrize("order", [math.inf, -math.inf])
def test_the_extremum_of_no_absolute_values_is_refused(device: Device, order: float) -> None:
    x = polyhal.zeros((3, 0), device=device)
    with pytest.raises(ShapeError, match="vector_norm of no elements is undefined"):
        polyhal.linalg.vector_norm(x, order, -1)
    assert polyhal.linalg.vector_norm(x, order, 0).shape == (0,)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_no_rows_and_no_classes_equals_pytorchs(device: Device, reduction: str) -> None:
    x = polyhal.zeros((0, 0), device=device, requires_grad=True)
    target = polyhal.zeros((0,), dtype="int64", device=device)
    loss = polyhal.nn.functional.cross_entropy(x, target, reduction=reduction)
    loss.sum().backward()
    expected = torch.nn.functional.cross_entropy(torch.zeros(0, 0), torch.zeros(0).long(), reduction=reduction)
    np.testing.assert_array_equal(loss.numpy(), expected.numpy())
    assert x.grad.shape == (0, 0)
